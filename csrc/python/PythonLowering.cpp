// Lowering, answered by torchtpu.runtime.bridge: roles, signatures, and moving data.

#include <pybind11/complex.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include "csrc/device/Host.h"
#include "csrc/python/Launch.h"
#include "csrc/python/Objects.h"
#include "csrc/python/PythonHost.h"
#include "csrc/record/Lowering.h"
#include "csrc/record/Recorder.h"

namespace tpu {

namespace {

Lowering* the_lowering = nullptr;

py::object dtype_object(c10::ScalarType dtype) {
  return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(torch::getTHPDtype(dtype)));
}

c10::ScalarType scalar_type(py::handle object) {
  return reinterpret_cast<THPDtype*>(object.ptr())->scalar_type;
}

py::tuple to_tuple(c10::IntArrayRef values) {
  py::tuple result(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    result[i] = values[i];
  }
  return result;
}

Sizes to_sizes(py::handle values) {
  Sizes sizes;
  for (py::handle value : values) {
    sizes.push_back(value.cast<int64_t>());
  }
  return sizes;
}

// Arguments as Python sees them: tensors and run-time numbers as tagged tuples, everything else as itself.
class ArgumentWriter {
 public:
  explicit ArgumentWriter(const Call& call) : call_(call) {}

  py::list write() {
    py::list result;
    for (uint32_t index = 0; index < call_.op->args.size(); ++index) {
      result.append(value(call_.arg(index), index));
    }
    return result;
  }

 private:
  py::object value(const c10::IValue& item, uint32_t index) {
    if (item.isTensor()) {
      return tensor(item.toTensor());
    }
    const bool number = item.isDouble() || item.isInt() || item.isComplexDouble();
    if (number && next_scalar_ < call_.scalars.size() && call_.scalars[next_scalar_].arg == index) {
      ++next_scalar_;
      return py::make_tuple("run-time", plain(item));
    }
    if (item.isList() && !item.isString()) {
      py::list list;
      for (const c10::IValue& each : item.toListRef()) {
        list.append(value(each, index));
      }
      return list;
    }
    return plain(item);
  }

  py::object tensor(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      return py::none();
    }
    if (tensor.device().is_cpu()) {
      ++next_scalar_;
      return py::make_tuple("host", dtype_object(tensor.scalar_type()),
                            tensor.unsafeGetTensorImpl()->is_wrapped_number());
    }
    const TensorArg& arg = call_.tensors[next_tensor_++];
    return py::make_tuple("tensor", arg.buffer, dtype_object(tensor.scalar_type()), to_tuple(tensor.sizes()),
                          to_tuple(tensor.strides()), tensor.storage_offset(), tensor.is_conj(), tensor.is_neg());
  }

  static py::object plain(const c10::IValue& item) {
    if (item.isNone()) {
      return py::none();
    }
    if (item.isBool()) {
      return py::bool_(item.toBool());
    }
    if (item.isInt()) {
      return py::int_(item.toInt());
    }
    if (item.isDouble()) {
      return py::float_(item.toDouble());
    }
    if (item.isComplexDouble()) {
      return py::cast(std::complex<double>(item.toComplexDouble()));
    }
    if (item.isString()) {
      return py::str(item.toStringRef());
    }
    return py::none(); // devices, generators, storages: not part of a lowering
  }

  const Call& call_;
  size_t next_scalar_ = 0;
  size_t next_tensor_ = 0;
};

py::list describe_buffers(const Call& call) {
  py::list result;
  std::lock_guard<std::mutex> guard(recorder_lock());
  for (const TpuBuffer* buffer : call.buffers) {
    if (buffer->state == State::kEmpty) {
      result.append(py::make_tuple(py::none(), py::none(), buffer->num_bytes));
    } else {
      result.append(
          py::make_tuple(dtype_object(buffer->desc->dtype), to_tuple(buffer->desc->shape), buffer->num_bytes));
    }
  }
  return result;
}

ReturnSpec return_spec(py::tuple spec) {
  const auto kind = spec[0].cast<std::string>();
  if (kind == "new") {
    return {ReturnSpec::kNew, spec[1].cast<int64_t>(), 1};
  }
  if (kind == "arg") {
    return {ReturnSpec::kArg, spec[1].cast<int64_t>(), 0};
  }
  if (kind == "list") {
    return {ReturnSpec::kNewList, spec[1].cast<int64_t>(), spec[2].cast<uint32_t>()};
  }
  if (kind == "int") {
    return {ReturnSpec::kInt, spec[1].cast<int64_t>(), 0};
  }
  TORCH_INTERNAL_ASSERT(kind == "undefined", "unknown return ", kind);
  return {ReturnSpec::kUndefined, 0, 0};
}

Signature::Kind signature_kind(const std::string& name) {
  if (name == "node") {
    return Signature::kNode;
  }
  if (name == "resize") {
    return Signature::kResize;
  }
  if (name == "dynamic") {
    return Signature::kDynamic;
  }
  if (name == "fallback") {
    return Signature::kFallback;
  }
  TORCH_INTERNAL_ASSERT(name == "nothing", "unknown kind of signature: ", name);
  return Signature::kNothing;
}

std::unique_ptr<Signature> read_signature(const Call& call, py::object answer) {
  auto signature = std::make_unique<Signature>();
  signature->op = call.op;
  signature->words = call.words;
  signature->hash = call.hash;
  signature->kind = signature_kind(answer.attr("kind").cast<std::string>());
  for (py::handle item : answer.attr("resizes")) {
    auto resize = item.cast<py::tuple>();
    signature->resizes.push_back({resize[0].cast<uint32_t>(), to_sizes(resize[1]), to_sizes(resize[2])});
  }
  for (py::handle item : answer.attr("outputs")) {
    auto output = item.cast<py::tuple>();
    const Sizes shape = to_sizes(output[3]);
    const c10::ScalarType dtype = scalar_type(output[0]);
    signature->outputs.push_back(
        {dtype, to_sizes(output[1]), to_sizes(output[2]), output[4].cast<bool>(), intern_desc(dtype, shape)});
  }
  for (py::handle item : answer.attr("returns")) {
    signature->returns.push_back(return_spec(item.cast<py::tuple>()));
  }
  for (py::handle item : answer.attr("mutations")) {
    auto mutation = item.cast<py::tuple>();
    signature->mutations.push_back(
        {mutation[0].cast<uint32_t>(), intern_desc(scalar_type(mutation[1]), to_sizes(mutation[2]))});
  }
  for (py::handle item : answer.attr("reads")) {
    signature->reads.push_back(item.cast<bool>() ? 1 : 0);
  }
  for (py::handle item : answer.attr("slots")) {
    signature->slots.push_back(static_cast<SlotClass>(item.cast<int>()));
  }
  signature->num_draws = answer.attr("num_draws").cast<uint32_t>();
  signature->lowering = answer.attr("lowering").cast<py::object>().release().ptr();
  return signature;
}

struct PythonLowering final : public Lowering {
  void describe(OpInfo& op) override {
    py::gil_scoped_acquire gil;
    py::object answer = call_bridge("describe", op.name);
    auto roles = answer.attr("roles").cast<std::vector<uint8_t>>();
    auto takes_cpu = answer.attr("takes_cpu").cast<std::vector<bool>>();
    for (size_t i = 0; i < op.args.size(); ++i) {
      op.args[i].role = roles[i];
      op.args[i].takes_cpu = takes_cpu[i];
    }
    op.uses_precision = answer.attr("uses_precision").cast<bool>();
    op.is_fill = answer.attr("is_fill").cast<bool>();
    op.value_errors = answer.attr("value_errors").cast<bool>();
    op.value_errors_of_floats = answer.attr("value_errors_of_floats").cast<bool>();
  }

  std::unique_ptr<Signature> resolve(const Call& call) override {
    py::gil_scoped_acquire gil;
    py::list args = ArgumentWriter(call).write();
    return read_signature(call, call_bridge("resolve", call.op->name, args, describe_buffers(call)));
  }

  void run(Program& program, const char* reason, bool keep_roots) override {
    py::gil_scoped_acquire gil;
    launch(program, reason, keep_roots);
  }

  // Everything the call reads is computed first; the rule then sees concrete arrays.
  void run_dynamic(Call& call, Signature& signature) override {
    py::gil_scoped_acquire gil;
    note_sync(call.op->name.c_str());
    py::list arrays;
    std::vector<TpuBuffer*> buffers = call.buffers;
    std::vector<py::object> numbers;
    for (const ScalarUse& use : call.scalars) {
      numbers.push_back(use.kind == ScalarUse::kInt      ? py::object(py::int_(use.integer))
                        : use.kind == ScalarUse::kDouble ? py::object(py::float_(use.number.real()))
                                                         : py::cast(std::complex<double>(use.number)));
    }
    for (TpuBuffer* buffer : buffers) {
      Array array = array_of(buffer, call.op->name.c_str());
      arrays.append(array ? py::reinterpret_borrow<py::object>(static_cast<PyObject*>(array.object())) : py::none());
    }
    const c10::DeviceIndex device = call.device;
    OpInfo* op = call.op;
    torch::jit::Stack* stack = call.stack;
    py::list answer =
        call_bridge("run_dynamic", py::reinterpret_borrow<py::object>(static_cast<PyObject*>(signature.lowering)),
                    arrays, py::cast(numbers), static_cast<int>(device));
    torch::jit::drop(*stack, op->args.size());
    for (py::handle item : answer) {
      auto output = item.cast<py::tuple>(); // dtype, shape in memory, array, sizes, strides
      const Desc* desc = intern_desc(scalar_type(output[0]), to_sizes(output[1]));
      auto* buffer = new TpuBuffer(desc->num_bytes, device);
      buffer->set_array(desc, Array(output[2].cast<py::object>().release().ptr(), desc->num_bytes, device));
      stack->push_back(make_tensor(buffer, desc->dtype, to_sizes(output[3]), to_sizes(output[4])));
    }
  }

  void note_fallback(const OpInfo& op) override {
    py::gil_scoped_acquire gil;
    call_bridge("note_fallback", op.name);
  }
  void end_fallback() noexcept override {
    py::gil_scoped_acquire gil;
    try {
      call_bridge("end_fallback");
    } catch (python_error& error) {
      error.restore();
      PyErr_WriteUnraisable(nullptr);
    }
  }
  void check(const OpInfo& op, c10::DeviceIndex device) override {
    py::gil_scoped_acquire gil;
    call_bridge("check", op.name, static_cast<int>(device));
  }
  void note_sync(const char* what) override {
    py::gil_scoped_acquire gil;
    call_bridge("note_sync", what);
  }

  Array upload(const void* data, const Desc* desc, c10::DeviceIndex device, const at::Tensor* keep_alive) override {
    py::gil_scoped_acquire gil;
    py::object owner = keep_alive == nullptr ? py::object(py::none()) : py::cast(*keep_alive);
    // An empty memoryview of address 0 would be refused.
    static char nothing = 0;
    auto view = py::memoryview::from_memory(data == nullptr ? &nothing : data, desc->num_bytes);
    py::object array =
        call_bridge("upload", view, dtype_object(desc->dtype), to_tuple(desc->shape), static_cast<int>(device), owner);
    return {array.release().ptr(), desc->num_bytes, device};
  }
  void download(const Array& array, void* data, int64_t num_bytes) override {
    py::gil_scoped_acquire gil;
    call_bridge("download", py::reinterpret_borrow<py::object>(static_cast<PyObject*>(array.object())),
                py::memoryview::from_memory(data, num_bytes));
  }
  Array to_device(const Array& array, const Desc* desc, c10::DeviceIndex device) override {
    py::gil_scoped_acquire gil;
    py::object moved =
        call_bridge("to_device", py::reinterpret_borrow<py::object>(static_cast<PyObject*>(array.object())),
                    static_cast<int>(device));
    return {moved.release().ptr(), desc->num_bytes, device};
  }
};

} // namespace

Lowering& lowering() {
  TORCH_INTERNAL_ASSERT(the_lowering != nullptr);
  return *the_lowering;
}

void set_lowering(Lowering* lowering) {
  the_lowering = lowering;
}

void install_lowering() {
  set_lowering(new PythonLowering());
}

} // namespace tpu
