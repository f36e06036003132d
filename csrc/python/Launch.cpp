#include "csrc/python/Launch.h"

#include <pybind11/complex.h>
#include <pybind11/numpy.h>
#include <torch/csrc/DynamicTypes.h>

#include <algorithm>
#include <chrono>
#include <complex>
#include <cstring>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "csrc/device/Host.h"
#include "csrc/device/MemoryStats.h"
#include "csrc/python/DeferredInterrupt.h"
#include "csrc/python/Donations.h"
#include "csrc/python/ProgramCache.h"
#include "csrc/record/Lowering.h"

namespace tpu {

namespace {

// The numbers of one launch, in an executable's layout.
struct SlotValues {
  std::array<std::vector<c10::complex<double>>, kNumSlotClasses> numbers;
  std::vector<int64_t> integers;
};

template <typename T, typename Source>
py::array_t<T> vector_of(const std::vector<Source>& values) {
  py::array_t<T> result(static_cast<py::ssize_t>(values.size()));
  T* data = result.mutable_data();
  for (size_t i = 0; i < values.size(); ++i) {
    if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>) {
      data[i] = T(static_cast<typename T::value_type>(values[i].real()),
                  static_cast<typename T::value_type>(values[i].imag()));
    } else if constexpr (std::is_same_v<Source, int64_t>) {
      data[i] = values[i];
    } else {
      data[i] = static_cast<T>(values[i].real());
    }
  }
  return result;
}

class Launch {
 public:
  Launch(Program& program, bool keep_roots) : program_(program), keep_roots_(keep_roots) {}

  void run(const char* reason) {
    ensure_started(program_.device); // raises in a forked child, where XLA would hang
    drain_releases();
    select_outputs();
    if (program_.abstract) {
      finish_abstract(reason);
    }
    if (outputs_.empty()) {
      return; // nobody holds a result: nothing to compute
    }
    donations_ = choose_donations(program_, outputs_);
    std::shared_ptr<CompiledProgram> entry = find_or_compile(reason);
    program_cache().note_use(*entry);
    const py::list args = arguments(*entry);
    MemoryStats::of(program_.device).note_transient(entry->transient_bytes);
    py::list results;
    {
      const DeferredInterrupt deferred;
      results = call_bridge("launch", entry->executable, args, static_cast<int>(program_.device)).cast<py::list>();
      commit(*entry, results);
    }
    call_bridge("launched", results, static_cast<int>(program_.device));
  }

  // Donated arrays that the failed launch consumed are lost.
  void fail(const std::string& text) {
    auto error = std::make_shared<const std::string>(text);
    std::vector<bool> lost(program_.inputs.size(), false);
    for (uint32_t input : donations_.inputs) {
      py::handle array(static_cast<PyObject*>(program_.inputs[input].array.object()));
      lost[input] = py::hasattr(array, "is_deleted") && array.attr("is_deleted")().cast<bool>();
    }
    std::lock_guard<std::mutex> guard(recorder_lock());
    program_.fail(error, lost);
  }

 private:
  // Values of buffers that somebody other than the program holds; with keep_roots also the results of nodes of which
  // nothing is held or consumed. A result that is dropped beside one that is used (the indices of a pooling) is not
  // computed.
  void select_outputs() {
    std::lock_guard<std::mutex> guard(recorder_lock());
    std::vector<uint8_t> live(program_.values.size(), 0);
    std::vector<uint8_t> used(program_.nodes.size(), 0);
    for (TpuBuffer* buffer : program_.members) {
      const bool ours = buffer->state == State::kPending && buffer->program == &program_;
      if (ours && buffer->references.load() > 1) {
        live[buffer->value] = 1;
      }
    }
    for (uint32_t index = 0; index < program_.values.size(); ++index) {
      const Value& value = program_.values[index];
      used[value.node] |= static_cast<uint8_t>(live[index] != 0 || value.consumed);
    }
    for (uint32_t index = 0; index < program_.values.size(); ++index) {
      if (live[index] != 0 || (keep_roots_ && used[program_.values[index].node] == 0)) {
        outputs_.push_back(index);
      }
    }
  }

  std::shared_ptr<CompiledProgram> find() {
    structure_ = program_.structure;
    structure_.mix(static_cast<uint64_t>(program_.device));
    structure_.mix(outputs_.size());
    for (uint32_t output : outputs_) {
      structure_.mix(output);
    }
    for (uint32_t input : donations_.inputs) {
      structure_.mix(input);
    }
    for (const auto& [input, output] : donations_.replacements) {
      structure_.mix(input);
      structure_.mix(output);
    }
    key_ = structure_;
    key_.mix(program_.pattern);
    auto exact = program_cache().find(key_);
    if (exact != nullptr && place_slots(*exact)) {
      return exact;
    }
    for (auto& variant : program_cache().variants(structure_)) {
      if (place_slots(*variant)) {
        return variant;
      }
    }
    return nullptr;
  }

  // Fills in the numbers where the executable wants them. False if it expects two of them to be equal that are not.
  bool place_slots(const CompiledProgram& entry) {
    SlotValues placed;
    std::array<std::vector<uint8_t>, kNumSlotClasses> filled;
    for (size_t group = 0; group < kNumSlotClasses; ++group) {
      filled[group].assign(entry.num_slots[group], 0);
      placed.numbers[group].resize(entry.num_slots[group]);
    }
    placed.integers.resize(entry.num_slots[static_cast<size_t>(SlotClass::kInt64)]);
    for (size_t use = 0; use < program_.uses.size(); ++use) {
      const SlotRef to = entry.uses[use];
      const SlotRef from = program_.uses[use];
      const auto group = static_cast<size_t>(to.group);
      uint8_t& done = filled[group][to.index];
      if (to.group == SlotClass::kInt64) {
        const int64_t value = program_.integers[from.index];
        if (done != 0 && placed.integers[to.index] != value) {
          return false;
        }
        placed.integers[to.index] = value;
      } else {
        const c10::complex<double> value = program_.slots[group][from.index];
        if (done != 0 && !same(placed.numbers[group][to.index], value)) {
          return false;
        }
        placed.numbers[group][to.index] = value;
      }
      done = 1;
    }
    slots_ = std::move(placed);
    return true;
  }

  // By their bits, as while recording: 0.0 and -0.0 are two numbers, and a NaN is one.
  static bool same(const c10::complex<double>& a, const c10::complex<double>& b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
  }

  std::array<size_t, kNumSlotClasses> num_slots() const {
    std::array<size_t, kNumSlotClasses> counts{};
    for (size_t group = 0; group < kNumSlotClasses; ++group) {
      counts[group] = program_.slots[group].size();
    }
    counts[static_cast<size_t>(SlotClass::kInt64)] = program_.integers.size();
    return counts;
  }

  // The program as Python sees it; see torchtpu.graph.program.RecordedProgram.
  py::dict describe(const char* reason) {
    py::dict result;
    py::list nodes;
    for (size_t n = 0; n < program_.nodes.size(); ++n) {
      const Node& node = program_.nodes[n];
      const bool last = n + 1 == program_.nodes.size();
      const size_t end_ref = last ? program_.refs.size() : program_.nodes[n + 1].first_ref;
      const size_t end_use = last ? program_.uses.size() : program_.nodes[n + 1].first_use;
      const size_t end_value = last ? program_.values.size() : program_.nodes[n + 1].first_value;
      py::list refs;
      for (size_t i = node.first_ref; i < end_ref; ++i) {
        refs.append(py::make_tuple(static_cast<int>(program_.refs[i].kind), static_cast<int>(program_.refs[i].index)));
      }
      py::list uses;
      for (size_t i = node.first_use; i < end_use; ++i) {
        uses.append(py::make_tuple(static_cast<int>(program_.uses[i].group), program_.uses[i].index));
      }
      nodes.append(py::make_tuple(py::reinterpret_borrow<py::object>(static_cast<PyObject*>(node.signature->lowering)),
                                  refs, uses, node.first_value, end_value - node.first_value,
                                  node.signature->num_draws != 0 ? static_cast<int>(node.draw) : -1, node.recomputed));
    }
    py::list inputs;
    for (const Input& input : program_.inputs) {
      py::tuple shape(input.desc->shape.size());
      for (size_t i = 0; i < input.desc->shape.size(); ++i) {
        shape[i] = input.desc->shape[i];
      }
      inputs.append(py::make_tuple(
          py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(torch::getTHPDtype(input.desc->dtype))),
          shape));
    }
    char key[33];
    std::snprintf(key, sizeof key, "%016llx%016llx", static_cast<unsigned long long>(key_.high),
                  static_cast<unsigned long long>(key_.low));
    result["key"] = key;
    result["reason"] = reason;
    result["device"] = static_cast<int>(program_.device);
    result["fills"] = program_.fills;
    result["nodes"] = nodes;
    result["inputs"] = inputs;
    result["outputs"] = py::cast(outputs_);
    result["donated"] = py::cast(donations_.inputs);
    result["replacements"] = py::cast(donations_.replacements);
    const auto counts = num_slots();
    result["num_slots"] = py::cast(std::vector<size_t>(counts.begin(), counts.end()));
    result["num_draws"] = program_.draws.size();
    return result;
  }

  // Of several threads that miss the same program one compiles it, and the others wait.
  std::shared_ptr<CompiledProgram> find_or_compile(const char* reason) {
    static auto* in_progress = new std::unordered_set<Hash128>(); // guarded by the GIL
    std::shared_ptr<CompiledProgram> entry = find();
    while (entry == nullptr && !in_progress->insert(key_).second) {
      host().allow_threads([] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
      entry = find();
    }
    if (entry == nullptr) {
      try {
        entry = compile(reason);
      } catch (...) {
        in_progress->erase(key_);
        throw;
      }
      in_progress->erase(key_);
    }
    return entry;
  }

  std::shared_ptr<CompiledProgram> compile(const char* reason) {
    auto entry = std::make_shared<CompiledProgram>();
    entry->executable = call_bridge("compile", describe(reason));
    entry->arguments = entry->executable.attr("arguments").cast<std::vector<uint32_t>>();
    entry->results = entry->executable.attr("results").cast<std::vector<uint32_t>>();
    entry->transient_bytes = entry->executable.attr("transient_bytes").cast<int64_t>();
    entry->uses = program_.uses;
    entry->num_slots = num_slots();
    TORCH_INTERNAL_ASSERT(place_slots(*entry));
    program_cache().insert(key_, structure_, entry);
    return entry;
  }

  py::list arguments(const CompiledProgram& entry) {
    py::list args;
    using Group = SlotClass;
    auto numbers = [&](Group group) -> const std::vector<c10::complex<double>>& {
      return slots_.numbers[static_cast<size_t>(group)];
    };
    if (!numbers(Group::kFloat32).empty()) {
      args.append(vector_of<float>(numbers(Group::kFloat32)));
    }
    if (!numbers(Group::kFloat64).empty()) {
      args.append(vector_of<double>(numbers(Group::kFloat64)));
    }
    if (!slots_.integers.empty()) {
      args.append(vector_of<int64_t>(slots_.integers));
    }
    if (!numbers(Group::kComplex64).empty()) {
      args.append(vector_of<std::complex<float>>(numbers(Group::kComplex64)));
    }
    if (!numbers(Group::kComplex128).empty()) {
      args.append(vector_of<std::complex<double>>(numbers(Group::kComplex128)));
    }
    if (!program_.draws.empty()) {
      py::array_t<uint32_t> draws({static_cast<py::ssize_t>(program_.draws.size()), static_cast<py::ssize_t>(4)});
      uint32_t* data = draws.mutable_data();
      for (const auto& [seed, offset] : program_.draws) {
        *data++ = static_cast<uint32_t>(seed >> 32);
        *data++ = static_cast<uint32_t>(seed);
        *data++ = static_cast<uint32_t>(offset >> 32);
        *data++ = static_cast<uint32_t>(offset);
      }
      args.append(draws);
    }
    for (uint32_t input : entry.arguments) {
      auto* array = static_cast<PyObject*>(program_.inputs[input].array.object());
      if (Py_TYPE(array) == upload_type()) { // still on its way: waited for
        args.append(py::reinterpret_borrow<py::object>(array).attr("result")());
      } else {
        PyList_Append(args.ptr(), array);
      }
    }
    return args;
  }

  void commit(const CompiledProgram& entry, const py::list& results) {
    TORCH_INTERNAL_ASSERT(results.size() == entry.results.size() + 1); // the last is the token of the end
    std::lock_guard<std::mutex> guard(recorder_lock());
    for (size_t i = 0; i < entry.results.size(); ++i) {
      const Value& value = program_.values[entry.results[i]];
      if (owns(value, entry.results[i])) {
        PyObject* array = PyList_GET_ITEM(results.ptr(), static_cast<Py_ssize_t>(i));
        Py_INCREF(array);
        value.buffer->set_array(value.desc, Array(array, value.desc->num_bytes, program_.device));
      }
    }
  }

  bool owns(const Value& value, uint32_t index) const {
    const TpuBuffer* buffer = value.buffer;
    return buffer->state == State::kPending && buffer->program == &program_ && buffer->value == index;
  }

  // Outputs without a value get none; the others are left to be computed.
  void finish_abstract(const char* reason) {
    donations_ = possible_donations(program_, outputs_);
    call_bridge("keep_abstract", describe(reason));
    donations_ = {};
    std::vector<uint32_t> concrete;
    std::lock_guard<std::mutex> guard(recorder_lock());
    for (uint32_t output : outputs_) {
      const Value& value = program_.values[output];
      if (!program_.nodes[value.node].abstract) {
        concrete.push_back(output);
      } else if (owns(value, output)) {
        value.buffer->set_abstract(value.desc);
      }
    }
    outputs_ = std::move(concrete);
  }

  Program& program_;
  bool keep_roots_;
  std::vector<uint32_t> outputs_;
  Donations donations_;
  Hash128 structure_;
  Hash128 key_;
  SlotValues slots_;
};

} // namespace

void launch(Program& program, const char* reason, bool keep_roots) {
  Launch launch(program, keep_roots);
  program.refused = false;
  try {
    launch.run(reason);
  } catch (python_error& error) {
    py::handle value(error.value);
    program.refused = value && py::hasattr(value, "program_waits");
    if (program.refused) {
      throw;
    }
    py::object text = py::reinterpret_steal<py::object>(PyObject_Str(error.value));
    std::string why = text ? text.cast<std::string>() : "";
    launch.fail(why.empty() ? Py_TYPE(error.value)->tp_name : why); // an interrupt has no text
    throw;
  } catch (const std::exception& error) {
    launch.fail(error.what());
    throw;
  }
}

} // namespace tpu
