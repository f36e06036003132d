// What the recorder knows about an operator, once: which arguments it writes, and the role of each number.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace tpu {

// Roles of number arguments. The role decides whether a number is an input of the program or part of its key.
enum Role : uint8_t {
  kStatic = 0,
  kRuntime = 1,         // an input
  kStaticAtDefault = 2, // ... but not at the schema's default
  kStaticAtZero = 4,    // ... nor at zero, where semantics change
  kPromoted = 8,        // static until it is seen to vary
};

struct ArgInfo {
  uint8_t role = kStatic;
  bool written = false;   // the schema says that the operator mutates it
  bool takes_cpu = false; // CPU tensors of any size are moved to the device (indices)
  std::optional<double> default_number;
};

struct OpInfo {
  explicit OpInfo(const c10::OperatorHandle& handle);

  c10::OperatorHandle handle;
  std::string name; // "aten::add.Tensor"
  uint64_t hash;
  std::vector<ArgInfo> args;
  int device_arg = -1;
  int generator_arg = -1;
  int check_errors_arg = -1;
  bool uses_precision = false;         // its lowering depends on torch.set_float32_matmul_precision
  bool is_fill = false;                // its result depends on nothing but a number
  bool value_errors = false;           // the CPU may refuse it because of a value
  bool value_errors_of_floats = false; // ... of its first argument, which on the CPU is always floating

  // True if `value` of a kPromoted argument has to be an input, because fills of this shape were seen to vary.
  bool promoted(uint64_t shape_hash, double value);

 private:
  std::unordered_map<uint64_t, std::unordered_set<uint64_t>> seen_;
};

} // namespace tpu
