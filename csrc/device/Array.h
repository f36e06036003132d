// A counted reference to a jax.Array that can be shared and dropped on any thread, with or without the GIL.
// Python's own count is touched once when the box is made and once when the last reference goes.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "csrc/device/MemoryStats.h"

namespace tpu {

// Queues one reference to a Python object to be given up. Implemented in csrc/python.
void release_object(void* object);
// Gives back what was queued, if this thread holds the GIL. Must not be called under recorder_lock().
void drain_if_possible();

class Array {
 public:
  Array() = default;
  // Takes over one reference to a Python object that holds `num_bytes` of device memory.
  Array(void* object, int64_t num_bytes, c10::DeviceIndex device) : box_(new Box{{1}, object, num_bytes, device}) {
    MemoryStats::of(device).add(num_bytes);
  }
  Array(const Array& other) : box_(other.box_) {
    if (box_ != nullptr) {
      box_->references.fetch_add(1, std::memory_order_relaxed);
    }
  }
  Array(Array&& other) noexcept : box_(std::exchange(other.box_, nullptr)) {}
  Array& operator=(Array other) noexcept {
    std::swap(box_, other.box_);
    return *this;
  }
  ~Array() {
    if (box_ != nullptr && box_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      MemoryStats::of(box_->device).remove(box_->num_bytes);
      release_object(box_->object);
      delete box_;
    }
  }

  void* object() const { return box_ == nullptr ? nullptr : box_->object; }
  // True if no other Array shares the object.
  bool unique() const { return box_ != nullptr && box_->references.load(std::memory_order_acquire) == 1; }
  int64_t num_bytes() const { return box_->num_bytes; }
  explicit operator bool() const { return box_ != nullptr; }

 private:
  struct Box {
    std::atomic<int64_t> references;
    void* object;
    int64_t num_bytes;
    c10::DeviceIndex device;
  };
  Box* box_ = nullptr;
};

} // namespace tpu
