// What the C++ core asks of the Python side: starting JAX, waiting, events, transfers, lowering and running programs.
// Implemented once, in csrc/python; kept abstract so that nothing else sees a Python header.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/SafePyObject.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "csrc/device/Array.h"

namespace tpu {

class Host {
 public:
  virtual ~Host() = default;

  static constexpr char kFieldSeparator = '\x1f'; // between the fields of an error

  // Never throw; must not start JAX.
  virtual bool available() noexcept = 0;
  virtual c10::DeviceIndex device_count() noexcept = 0;

  // Runs `wait` without the GIL, whether or not this thread holds it.
  virtual void allow_threads(const std::function<void()>& wait) = 0;

  // Starts JAX at the first call. Raises what is wrong with the environment, platform or device index.
  virtual void start(c10::DeviceIndex device) = 0;
  // Runs what is recorded on the device and waits for it.
  virtual void synchronize(c10::DeviceIndex device) = 0;
  // Bytes free and in all.
  virtual std::pair<size_t, size_t> memory_info(c10::DeviceIndex device) = 0;
  virtual void empty_cache() = 0;

  virtual int64_t record_event(int64_t event, c10::DeviceIndex device, bool timed) = 0;
  virtual void destroy_event(int64_t event) noexcept = 0;
  virtual bool query_event(int64_t event) = 0;
  virtual void synchronize_event(int64_t event) = 0;
  virtual double elapsed_ms(int64_t first, int64_t second) = 0;
  virtual bool query_device(c10::DeviceIndex device) = 0;

  // Raises the error class `name` of torchtpu.errors. `fields` are "key=value" pairs separated by the unit separator.
  [[noreturn]] void raise(const char* name, const std::string& fields) {
    throw_error(name, fields);
    TORCH_INTERNAL_ASSERT(false, "no error was raised for ", name);
  }
  // Raises PoisonedTensorError with the first error's text.
  [[noreturn]] void raise_poisoned(const std::string& first) { raise("PoisonedTensorError", "first=" + first); }
  // Wraps a pointer so that it can ride in PyTorch's thread-local state.
  virtual std::shared_ptr<c10::SafePyObject> make_token(void* pointer) = 0;
  virtual void* read_token(const c10::SafePyObject& token) = 0;

 protected:
  virtual void throw_error(const char* name, const std::string& fields) = 0;
};

// True in a child forked after JAX started: nothing may touch the device there.
bool in_bad_fork();

Host& host();
void set_host(Host* host);

// Devices that JAX has started; 0 before the first use.
extern std::atomic<int> num_started_devices;
inline void ensure_started(c10::DeviceIndex device) {
  if (device >= num_started_devices.load(std::memory_order_relaxed) || in_bad_fork()) {
    host().start(device);
  }
}

// Raises DeviceIndexError for a device that does not exist. The first one always does, so JAX need not start to tell.
inline void ensure_exists(c10::DeviceIndex device) {
  if (device > 0) {
    ensure_started(device);
  }
}

// From here on, forked children are marked. No fork catches one of these locks in the hands of another thread, which
// the child would wait for forever; they are given in the order in which they nest.
void mark_forked_children(std::vector<std::mutex*> locks);

} // namespace tpu
