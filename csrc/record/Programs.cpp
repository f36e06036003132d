// Where programs wait, and how they come to run: by their own thread, or by whoever needs a value of theirs.

#include "csrc/record/Recorder.h"

#include <ATen/ThreadLocalPythonObjects.h>
#include <torch/csrc/autograd/graph_task.h>

#include <list>
#include <set>
#include <thread>

#include "csrc/device/Host.h"
#include "csrc/record/Lowering.h"

namespace tpu {

namespace {

std::condition_variable program_done;

std::set<Issuer*>& issuers() { // guarded by recorder_lock()
  static auto* all = new std::set<Issuer*>();
  return *all;
}

std::list<std::unique_ptr<Program>>& orphans() { // of threads that ended; guarded by recorder_lock()
  static auto* all = new std::list<std::unique_ptr<Program>>();
  return *all;
}

const std::string kTokenName = "torchtpu.issuer";

struct Cached {
  Issuer* issuer = nullptr;
  int graph_task = -1;
  std::shared_ptr<Issuer> owned; // dies with the thread that issued
};
thread_local Cached cached;

Issuer* find_issuer() {
  if (at::impl::ThreadLocalPythonObjects::contains(kTokenName)) {
    return static_cast<Issuer*>(host().read_token(*at::impl::ThreadLocalPythonObjects::get(kTokenName)));
  }
  cached.owned = std::shared_ptr<Issuer>(new Issuer(), [](Issuer* issuer) {
    std::lock_guard<std::mutex> guard(recorder_lock());
    issuers().erase(issuer);
    for (auto& slot : issuer->slots) { // what a thread leaves behind is run by whoever needs it
      for (auto* left : {&slot.fills, &slot.main}) {
        if (*left != nullptr && !(*left)->empty()) {
          orphans().push_back(std::move(*left));
        }
      }
    }
    delete issuer;
  });
  {
    std::lock_guard<std::mutex> guard(recorder_lock());
    issuers().insert(cached.owned.get());
  }
  at::impl::ThreadLocalPythonObjects::set(kTokenName, host().make_token(cached.owned.get()));
  return cached.owned.get();
}

uint64_t this_thread() {
  return std::hash<std::thread::id>()(std::this_thread::get_id());
}

std::unique_ptr<Program>* slot_of(Program* program) { // under recorder_lock()
  for (Issuer* issuer : issuers()) {
    auto& slot = issuer->slots[program->device];
    if (slot.main.get() == program) {
      return &slot.main;
    }
    if (slot.fills.get() == program) {
      return &slot.fills;
    }
  }
  for (auto& orphan : orphans()) {
    if (orphan.get() == program) {
      return &orphan;
    }
  }
  return nullptr;
}

// Under the lock: where fresh optimizer state could not be made, what the step recorded so far must not run either.
std::unique_ptr<Program> abandon_step(const Program& failed) {
  if (!failed.fills || issuers().count(failed.issuer) == 0) {
    return nullptr;
  }
  std::unique_ptr<Program> step = std::move(failed.issuer->slots[failed.device].main);
  if (step != nullptr) {
    auto error = std::make_shared<const std::string>("the optimizer state that it needs could not be made");
    step->fail(error, std::vector<bool>(step->inputs.size(), false));
  }
  return step;
}

// Under the lock: where it was taken from, or among those that anybody may run, if another is recorded there by now.
void put_back(std::unique_ptr<Program> program) {
  if (issuers().count(program->issuer) != 0) {
    auto& slot = program->issuer->slots[program->device];
    auto& place = program->fills ? slot.fills : slot.main;
    if (place == nullptr || place->empty()) {
      place = std::move(program);
      return;
    }
  }
  orphans().push_back(std::move(program));
}

// Runs a program that nobody records into any more.
void run_program(std::unique_ptr<Program> program, const char* reason, bool keep_roots) {
  try {
    lowering().run(*program, reason, keep_roots);
  } catch (...) {
    std::unique_ptr<Program> half_step; // released without the lock
    {
      std::lock_guard<std::mutex> guard(recorder_lock());
      program->running = false;
      program_done.notify_all();
      if (program->refused) {
        put_back(std::move(program));
      } else {
        half_step = abandon_step(*program);
      }
    }
    throw;
  }
  {
    std::lock_guard<std::mutex> guard(recorder_lock());
    program->running = false;
    program_done.notify_all();
  }
}

// Under the lock: takes the program out of its slot, marked as running.
std::unique_ptr<Program> take(std::unique_ptr<Program>& slot, const char* reason) {
  if (slot == nullptr || slot->empty()) {
    return nullptr;
  }
  slot->running = true;
  slot->running_thread = this_thread();
  counters().flushes[reason] += 1;
  return std::move(slot);
}

void flush_slot(std::unique_ptr<Program>& slot, const char* reason, bool keep_roots) {
  std::unique_ptr<Program> program;
  {
    std::lock_guard<std::mutex> guard(recorder_lock());
    program = take(slot, reason);
  }
  if (program != nullptr) {
    run_program(std::move(program), reason, keep_roots);
  }
}

} // namespace

// Lets other threads get on until some program is done; called, and left, without the lock.
void wait_for_a_program() {
  host().allow_threads([] {
    std::unique_lock<std::mutex> guard(recorder_lock());
    program_done.wait_for(guard, std::chrono::milliseconds(5));
  });
}

void check_not_mine(const Program& program) {
  TORCH_CHECK(program.running_thread != this_thread(),
              "A tensor was used while the program that computes it was being compiled on the same thread.");
}

// Runs a program that was waiting in some slot, if it still is.
void finish(Program* wanted, uint64_t serial, const char* reason) {
  std::unique_ptr<Program> program;
  {
    std::unique_lock<std::mutex> guard(recorder_lock());
    std::unique_ptr<Program>* slot = slot_of(wanted);
    if (slot != nullptr && (*slot)->serial == serial) {
      program = take(*slot, reason);
    }
  }
  if (program != nullptr) {
    run_program(std::move(program), reason, false);
  }
}

Issuer& current_issuer() {
  const int task = torch::autograd::get_current_graph_task_id();
  if (cached.issuer == nullptr || cached.graph_task != task) {
    cached.issuer = find_issuer();
    cached.graph_task = task;
  }
  return *cached.issuer;
}

void flush(c10::DeviceIndex device, const char* reason, bool keep_roots) {
  Issuer& issuer = current_issuer();
  const int first = device < 0 ? 0 : device;
  const int last = device < 0 ? issuer.num_devices : device + 1;
  for (int index = first; index < last; ++index) {
    flush_slot(issuer.slots[index].fills, reason, keep_roots);
    flush_slot(issuer.slots[index].main, reason, keep_roots);
  }
}

void flush_all(c10::DeviceIndex device, const char* reason, bool keep_roots) {
  flush(device, reason, keep_roots);
  while (true) {
    std::unique_ptr<Program> program;
    {
      std::lock_guard<std::mutex> guard(recorder_lock());
      for (auto& orphan : orphans()) {
        if (program == nullptr && (device < 0 || (orphan != nullptr && orphan->device == device))) {
          program = take(orphan, reason);
        }
      }
      for (Issuer* issuer : issuers()) {
        for (int index = 0; index < issuer->num_devices && program == nullptr; ++index) {
          if (device < 0 || index == device) {
            program = take(issuer->slots[index].fills, reason);
            if (program == nullptr) {
              program = take(issuer->slots[index].main, reason);
            }
          }
        }
      }
    }
    if (program == nullptr) {
      return;
    }
    run_program(std::move(program), reason, keep_roots);
  }
}

void materialize(TpuBuffer* buffer, const char* reason) {
  while (true) {
    Program* program = nullptr;
    uint64_t serial = 0;
    std::string poison;
    {
      std::unique_lock<std::mutex> guard(recorder_lock());
      if (buffer->state == State::kPoisoned) {
        poison = *buffer->error;
      } else if (buffer->state != State::kPending) {
        return;
      } else {
        program = buffer->program;
        serial = program->serial;
        if (program->running) {
          check_not_mine(*program);
          guard.unlock();
          wait_for_a_program();
          continue;
        }
      }
    }
    if (program == nullptr) {
      host().raise_poisoned(poison);
    }
    finish(program, serial, reason);
  }
}

Array array_of(TpuBuffer* buffer, const char* reason) {
  materialize(buffer, reason);
  {
    std::lock_guard<std::mutex> guard(recorder_lock());
    if (buffer->state != State::kAbstract) {
      return buffer->array;
    }
  }
  host().raise("AbstractTensorError", std::string("what=") + reason);
}

} // namespace tpu
