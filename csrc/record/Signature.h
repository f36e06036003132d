// One operator with everything about its arguments that its lowering depends on, and what follows from it.
#pragma once

#include <ATen/core/stack.h>
#include <c10/util/complex.h>

#include <deque>
#include <unordered_map>
#include <vector>

#include "csrc/device/Hash.h"
#include "csrc/record/Buffer.h"
#include "csrc/record/Op.h"

namespace tpu {

// Run-time numbers are packed by the dtype that ATen computes in.
enum class SlotClass : uint8_t { kFloat32, kFloat64, kInt64, kComplex64, kComplex128 };
constexpr size_t kNumSlotClasses = 5;

struct OutputMeta {
  c10::ScalarType dtype;
  Sizes sizes;
  Sizes strides;
  bool contiguous;
  const Desc* desc; // how the value lies in memory
};

// How one return of the schema is built.
struct ReturnSpec {
  enum Kind : uint8_t { kNew, kArg, kUndefined, kNewList, kInt } kind;
  int64_t index = 0;  // first new output, the argument, or the integer itself
  uint32_t count = 0; // of a list
};

struct Resize {
  uint32_t arg;
  Sizes sizes;
  Sizes strides;
};

struct Mutation {
  uint32_t buffer; // local number of the buffer in the call
  const Desc* desc;
};

struct Signature {
  enum Kind : uint8_t {
    kNode,     // becomes a node of the program
    kResize,   // out= arguments are resized first, then the call is recorded anew
    kDynamic,  // the shape of the result depends on values
    kFallback, // runs on the CPU
    kNothing,  // computes nothing (no outputs, nothing written)
  };
  OpInfo* op = nullptr;
  Kind kind = kNode;
  std::vector<uint64_t> words;
  Hash128 hash;
  std::vector<OutputMeta> outputs;
  std::vector<ReturnSpec> returns;
  std::vector<Mutation> mutations;
  std::vector<uint8_t> reads; // per buffer of the call: its value is an input of the node
  std::vector<SlotClass> slots;
  std::vector<Resize> resizes;
  uint32_t num_draws = 0;   // of random numbers
  void* lowering = nullptr; // Python object, kept for ever
};

// A number that enters the program as an input.
struct ScalarUse {
  uint32_t arg;
  enum Kind : uint8_t { kInt, kDouble, kComplex } kind;
  c10::complex<double> number;
  int64_t integer;
};

// A tensor argument, flattened out of lists.
struct TensorArg {
  const at::Tensor* tensor;
  uint32_t arg;
  uint32_t buffer; // local number
};

// One call of an operator, taken apart. Reused from call to call so that recording allocates nothing here.
struct Call {
  OpInfo* op = nullptr;
  torch::jit::Stack* stack = nullptr;
  std::vector<uint64_t> words;
  Hash128 hash;
  std::vector<TensorArg> tensors;
  std::vector<TpuBuffer*> buffers;
  std::vector<ScalarUse> scalars;
  c10::DeviceIndex device = -1;

  const c10::IValue& arg(size_t index) const { return (*stack)[stack->size() - op->args.size() + index]; }
};

// What stands in the way of recording a call.
struct Obstacle {
  Program* program = nullptr;          // another thread's program, to be run first
  const std::string* poison = nullptr; // an argument has no value
};

// Takes the arguments apart under recorder_lock(). Programs other than `own` that promise an argument's value are
// reported.
Obstacle scan(Call& call, const Program* own);

// Before the lock is taken: finds the device, moves CPU indices, and refuses mixed devices.
void prepare(Call& call);

class SignatureCache {
 public:
  Signature* find(const Call& call);
  Signature* insert(std::unique_ptr<Signature> signature); // keeps the first of two equal ones
  size_t size() const { return all_.size(); }

 private:
  std::unordered_map<Hash128, Signature*> table_;
  std::deque<std::unique_ptr<Signature>> all_;
};
SignatureCache& signature_cache(); // guarded by recorder_lock()

} // namespace tpu
