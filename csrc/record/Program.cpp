#include "csrc/record/Program.h"

#include <cstring>

#include "csrc/device/Generator.h"

namespace tpu {

namespace {

std::atomic<uint64_t> next_program{1};

uint64_t bits_of(double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Repetition is looked for by polynomial prefix hashes: two spans are equal when their hashes are.
constexpr uint64_t kBase = 0x100000001b3ULL;

uint64_t power(uint64_t exponent) {
  uint64_t result = 1;
  for (uint64_t factor = kBase; exponent != 0; exponent >>= 1, factor *= factor) {
    if ((exponent & 1) != 0) {
      result *= factor;
    }
  }
  return result;
}

// Shorter repetitions are ordinary code (the same two operators twice), not a loop around a model.
constexpr uint32_t kMinPeriod = 8;

} // namespace

// Seed and offset of the generator that was given, or of the device's own.
static std::pair<uint64_t, uint64_t> draw(const Call& call) {
  if (call.op->generator_arg >= 0 && call.arg(call.op->generator_arg).isGenerator()) {
    at::Generator generator = call.arg(call.op->generator_arg).toGenerator();
    return at::check_generator<TpuGeneratorImpl>(generator)->draw();
  }
  at::Generator generator = default_generator(call.device);
  return at::check_generator<TpuGeneratorImpl>(generator)->draw();
}

Program::Program(c10::DeviceIndex device)
    : serial(next_program.fetch_add(1)), device(device), birth_(newest_buffer_serial()) {}

Program::~Program() {
  for (TpuBuffer* buffer : members) {
    buffer->release();
  }
}

void Program::adopt(TpuBuffer* buffer) {
  if (buffer->member_of != serial) {
    buffer->member_of = serial;
    buffer->retain();
    members.push_back(buffer);
  }
}

Ref Program::input_ref(TpuBuffer* buffer) {
  if (buffer->input_of != serial) {
    buffer->input_of = serial;
    buffer->first_reader = buffer->first_reader == 0 ? serial : buffer->first_reader;
    buffer->input_index = static_cast<uint32_t>(inputs.size());
    inputs.push_back({buffer->array, buffer->desc});
  }
  return {Ref::kInput, buffer->input_index};
}

uint32_t Program::new_value(TpuBuffer* buffer, const Desc* desc) {
  const auto index = static_cast<uint32_t>(values.size());
  values.push_back({buffer, desc, static_cast<uint32_t>(nodes.size()), false});
  adopt(buffer);
  buffer->state = State::kPending;
  buffer->array = Array();
  buffer->program = this;
  buffer->value = index;
  buffer->desc = desc;
  buffer->input_of = 0;
  return index;
}

void Program::use_slots(const Call& call, const Signature& signature) {
  for (size_t i = 0; i < call.scalars.size(); ++i) {
    const ScalarUse& use = call.scalars[i];
    const SlotClass group = signature.slots[i];
    const bool integral = group == SlotClass::kInt64;
    const auto integer = use.kind == ScalarUse::kInt ? use.integer : static_cast<int64_t>(use.number.real());
    const c10::complex<double> number =
        use.kind == ScalarUse::kInt ? c10::complex<double>(static_cast<double>(use.integer)) : use.number;
    const SlotKey key{call.op->hash, use.arg | static_cast<uint64_t>(group) << 32,
                      integral ? static_cast<uint64_t>(integer) : bits_of(number.real()), bits_of(number.imag())};
    auto& slots_of_group = slots[static_cast<size_t>(group)];
    const auto next = static_cast<uint32_t>(integral ? integers.size() : slots_of_group.size());
    auto [found, fresh] = shared_slots_.emplace(key, next);
    if (fresh) {
      if (integral) {
        integers.push_back(integer);
      } else {
        slots_of_group.push_back(number);
      }
    }
    uses.push_back({group, found->second});
    pattern.mix(static_cast<uint64_t>(group) << 32 | found->second);
  }
}

void Program::append(const Call& call, Signature& signature, Circumstances at, std::vector<TpuBuffer*>& fresh) {
  Node node{&signature,
            static_cast<uint32_t>(refs.size()),
            static_cast<uint32_t>(values.size()),
            static_cast<uint32_t>(uses.size()),
            static_cast<uint32_t>(draws.size()),
            at.recomputing,
            at.abstract};
  for (uint32_t i = 0; i < signature.num_draws; ++i) {
    draws.push_back(draw(call));
  }
  structure.mix(signature.hash);
  structure.mix(at.recomputing ? 1 : 0);
  repeats_ = false;
  if (at.inference) {
    note_node(call, signature);
  }
  for (size_t i = 0; i < call.buffers.size(); ++i) {
    TpuBuffer* buffer = call.buffers[i];
    Ref ref{Ref::kNothing, 0};
    if (signature.reads[i] != 0) {
      if (buffer->state == State::kPending) {
        values[buffer->value].consumed = true;
        node.abstract = node.abstract || nodes[values[buffer->value].node].abstract;
        ref = {Ref::kValue, buffer->value};
      } else if (buffer->state != State::kEmpty) {
        node.abstract = node.abstract || buffer->state == State::kAbstract;
        ref = input_ref(buffer);
      }
    }
    refs.push_back(ref);
    structure.mix(static_cast<uint64_t>(ref.kind) << 32 | ref.index);
  }
  use_slots(call, signature);
  for (const OutputMeta& output : signature.outputs) {
    auto* buffer = new TpuBuffer(output.desc->num_bytes, device);
    buffer->computed = true;
    new_value(buffer, output.desc);
    fresh.push_back(buffer);
  }
  for (const Mutation& mutation : signature.mutations) {
    TpuBuffer* buffer = call.buffers[mutation.buffer];
    if (buffer->state == State::kArray || buffer->state == State::kAbstract) {
      restores.push_back({buffer, input_ref(buffer).index});
    } else if (buffer->state == State::kEmpty) {
      restores.push_back({buffer, kNoInput});
    }
    new_value(buffer, mutation.desc);
  }
  abstract = abstract || node.abstract;
  nodes.push_back(node);
}

// What a model keeps, as opposed to a batch that came later or an activation that the program before this one left.
bool Program::is_parameter(const TpuBuffer& buffer) const {
  const bool read_before = buffer.first_reader != 0 && buffer.first_reader != serial;
  return buffer.state != State::kPending && buffer.serial < birth_ && (!buffer.computed || read_before);
}

// A node counts as the same when its signature is, and so are the parameters that it reads.
// Structure alone would cut a transformer between its layers.
void Program::note_node(const Call& call, const Signature& signature) {
  Hash128 hash = signature.hash;
  for (const TpuBuffer* buffer : call.buffers) {
    if (is_parameter(*buffer)) {
      hash.mix(buffer->serial);
    }
  }
  const auto position = static_cast<uint32_t>(prefix_.size());
  prefix_.push_back((position == 0 ? 0 : prefix_.back() * kBase) + hash.low);
  auto [last, fresh] = last_seen_.emplace(hash.low, position);
  const uint32_t period = position - last->second;
  last->second = position;
  if (fresh || period < kMinPeriod || position + 1 < 2 * period) {
    return;
  }
  const uint64_t scale = power(period);
  auto span = [&](uint32_t end) { // of `period` nodes, ending at `end`
    return prefix_[end] - (end >= period ? prefix_[end - period] * scale : 0);
  };
  repeats_ = span(position) == span(position - period);
}

bool Program::repeats() const {
  return repeats_;
}

void Program::fail(const std::shared_ptr<const std::string>& error, const std::vector<bool>& lost) {
  auto promised = [this](const TpuBuffer* buffer) { // and not overwritten since, by an upload for instance
    return buffer->state == State::kPending && buffer->program == this;
  };
  for (auto last = restores.rbegin(); last != restores.rend();
       ++last) { // a buffer's newest value from outside comes first
    const Restore& restore = *last;
    if (!promised(restore.buffer)) {
      continue;
    }
    if (restore.input == kNoInput) {
      restore.buffer->set_empty();
    } else if (lost[restore.input]) {
      restore.buffer->set_poisoned(error);
    } else if (inputs[restore.input].array) {
      restore.buffer->set_array(inputs[restore.input].desc, inputs[restore.input].array);
    } else {
      restore.buffer->set_abstract(inputs[restore.input].desc);
    }
  }
  for (TpuBuffer* buffer : members) {
    if (promised(buffer)) {
      buffer->set_poisoned(error);
    }
  }
}

} // namespace tpu
