#include "csrc/device/Host.h"

#include <c10/util/Exception.h>
#include <pthread.h>

namespace tpu {

static Host* the_host = nullptr;
static std::atomic<bool> bad_fork{false};
std::atomic<int> num_started_devices{0};

Host& host() {
  TORCH_INTERNAL_ASSERT(the_host != nullptr, "torchtpu._C was loaded without its Python side");
  return *the_host;
}

void set_host(Host* host) {
  the_host = host;
}

bool in_bad_fork() {
  return bad_fork.load(std::memory_order_relaxed);
}

static std::vector<std::mutex*>& fork_locks() {
  static auto* locks = new std::vector<std::mutex*>();
  return *locks;
}

static void unlock_after_fork() {
  for (auto lock = fork_locks().rbegin(); lock != fork_locks().rend(); ++lock) {
    (*lock)->unlock();
  }
}

void mark_forked_children(std::vector<std::mutex*> locks) {
  fork_locks() = std::move(locks);
  auto before = [] {
    for (std::mutex* lock : fork_locks()) {
      lock->lock();
    }
  };
  auto in_child = [] {
    unlock_after_fork();
    bad_fork = true;
  };
  pthread_atfork(before, &unlock_after_fork, in_child);
}

} // namespace tpu
