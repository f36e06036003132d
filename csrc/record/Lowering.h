// What the recorder asks of Python: roles of arguments, signatures, running programs, and moving data.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "csrc/record/Program.h"
#include "csrc/record/Signature.h"

namespace tpu {

class Lowering {
 public:
  virtual ~Lowering() = default;

  // Fills in the roles of an operator's arguments.
  virtual void describe(OpInfo& op) = 0;
  // Infers outputs and finds the rule of a call that was not seen before. Raises what PyTorch raises for bad arguments.
  virtual std::unique_ptr<Signature> resolve(const Call& call) = 0;
  // Compiles if need be and launches; sets every member buffer of the program. Raises with nothing lost.
  virtual void run(Program& program, const char* reason, bool keep_roots) = 0;
  // Runs a call whose result shape depends on values; replaces the arguments on the stack by the results.
  virtual void run_dynamic(Call& call, Signature& signature) = 0;
  // Counts a call that runs on the CPU, warns once, or raises as TORCHTPU_FALLBACK says.
  virtual void note_fallback(const OpInfo& op) = 0;
  // That call is over, well or badly.
  virtual void end_fallback() noexcept = 0;
  // Debug mode: waits for the results of the operator just run and checks them.
  virtual void check(const OpInfo& op, c10::DeviceIndex device) = 0;

  // A device array with a copy of host memory. With `keep_alive`, the copy may happen later, in the background.
  virtual Array upload(const void* data, const Desc* desc, c10::DeviceIndex device, const at::Tensor* keep_alive) = 0;
  // Waits for the array and copies it out.
  virtual void download(const Array& array, void* data, int64_t num_bytes) = 0;
  virtual Array to_device(const Array& array, const Desc* desc, c10::DeviceIndex device) = 0;
  // Counts a read by the host, by user line.
  virtual void note_sync(const char* what) = 0;
};

Lowering& lowering();
void set_lowering(Lowering* lowering);

} // namespace tpu
