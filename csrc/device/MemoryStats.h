// Bytes of live device arrays, per device: what torch.tpu.memory_allocated() and its peak report.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>

namespace tpu {

struct MemoryStats {
  std::atomic<int64_t> current_bytes{0};
  std::atomic<int64_t> peak_bytes{0};
  std::atomic<int64_t> allocated_bytes{0}; // ever
  std::atomic<int64_t> freed_bytes{0};     // ever
  std::atomic<int64_t> num_allocations{0};
  std::atomic<int64_t> num_live{0};
  std::atomic<int64_t> peak_live{0};

  void add(int64_t num_bytes) {
    raise_to(peak_bytes, current_bytes.fetch_add(num_bytes) + num_bytes);
    raise_to(peak_live, num_live.fetch_add(1) + 1);
    allocated_bytes += num_bytes;
    num_allocations += 1;
  }
  void remove(int64_t num_bytes) {
    current_bytes -= num_bytes;
    num_live -= 1;
    freed_bytes += num_bytes;
  }
  // A running program needs this much beyond the live arrays.
  void note_transient(int64_t num_bytes) { raise_to(peak_bytes, current_bytes.load() + num_bytes); }
  void reset_peak() {
    peak_bytes = current_bytes.load();
    peak_live = num_live.load();
  }
  static MemoryStats& of(c10::DeviceIndex device);
  static constexpr int kMaxDevices = 128;

 private:
  static void raise_to(std::atomic<int64_t>& peak, int64_t value) {
    int64_t seen = peak.load();
    while (value > seen && !peak.compare_exchange_weak(seen, value)) {
    }
  }
};

inline MemoryStats& MemoryStats::of(c10::DeviceIndex device) {
  static auto* stats = new MemoryStats[kMaxDevices];
  return stats[device < 0 ? 0 : device % kMaxDevices];
}

} // namespace tpu
