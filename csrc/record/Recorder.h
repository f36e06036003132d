// One program per (device, issuing thread), and the rules by which programs end.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <array>
#include <map>
#include <memory>
#include <string>

#include "csrc/device/MemoryStats.h"
#include "csrc/record/Program.h"

namespace tpu {

enum class EagerMode : int { kFused = 0, kStrict = 1, kDebug = 2 };

// A thread that issues operators. Threads of the autograd engine work for the thread that called backward().
struct Issuer {
  struct Slot {
    std::unique_ptr<Program> main;
    std::unique_ptr<Program> fills; // fresh optimizer state, so that the first step is the same program as the second
  };
  std::array<Slot, MemoryStats::kMaxDevices> slots;
  int num_devices = 0; // used so far
  int optimizer_depth = 0;
  bool step_done = false;   // the outermost optimizer step ended: a boundary once other work begins
  bool accumulated = false; // a backward pass added into gradients: a boundary once a forward pass begins
  bool abstract = false;    // inside torchtpu.abstract()
};
Issuer& current_issuer();

// Everything that is counted. Guarded by recorder_lock().
struct Counters {
  int64_t records = 0;
  std::map<std::string, int64_t> flushes;
  int64_t bytes_to_device = 0;
  int64_t bytes_to_host = 0;
};
Counters& counters();

EagerMode eager_mode();
void set_eager_mode(EagerMode mode);
void set_max_nodes(int64_t max_nodes);

// The boxed kernel of every recorded operator.
void record(OpInfo& op, torch::jit::Stack* stack);

// Runs what this thread recorded on a device (every device: -1). `keep_roots`: results nobody holds are computed too.
void flush(c10::DeviceIndex device, const char* reason, bool keep_roots = false);
// The same for all threads.
void flush_all(c10::DeviceIndex device, const char* reason, bool keep_roots = false);
// Runs the program with this serial if it still waits somewhere.
void finish(Program* program, uint64_t serial, const char* reason);
// Lets other threads get on until some program is done; called without the lock.
void wait_for_a_program();
// A program that runs on this very thread cannot be waited for.
void check_not_mine(const Program& program);
// Makes a buffer's value an array, whoever promised it. Raises if it is poisoned.
void materialize(TpuBuffer* buffer, const char* reason);
// A materialized buffer's array, shared; none if nothing was ever written. Raises if it is abstract.
Array array_of(TpuBuffer* buffer, const char* reason);

void leave_optimizer(int depth); // back to `depth`; at zero the step is done
void end_zero_grad();
void next_batch();

} // namespace tpu
