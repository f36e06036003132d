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

void note_started() {
  static int registered = pthread_atfork(nullptr, nullptr, [] { bad_fork = true; });
  (void)registered;
}

} // namespace tpu
