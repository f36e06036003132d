#include "csrc/device/Allocator.h"

#include "csrc/device/Guard.h"
#include "csrc/device/Host.h"
#include "csrc/device/MemoryStats.h"
#include "csrc/record/Buffer.h"

namespace tpu {

namespace {

struct TpuAllocator final : public c10::DeviceAllocator {
  c10::DataPtr allocate(size_t num_bytes) override {
    const c10::DeviceIndex device = current_device();
    ensure_started(device);
    return make_data_ptr(new TpuBuffer(static_cast<int64_t>(num_bytes), device));
  }
  c10::DeleterFnPtr raw_deleter() const override { return &delete_buffer; }
  void copy_data(void* /*dest*/, const void* /*src*/, std::size_t /*count*/) const override {
    TORCH_CHECK(false, "tpu storages hold XLA values, not bytes that can be copied by address. Use Tensor.copy_().");
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override { host().empty_cache(); }
  void recordStream(const c10::DataPtr& /*ptr*/, c10::Stream /*stream*/) override {} // XLA keeps arguments alive itself

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    ensure_exists(device);
    MemoryStats& now = MemoryStats::of(device);
    c10::CachingDeviceAllocator::DeviceStats stats;
    const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    for (auto* bytes : {&stats.allocated_bytes, &stats.active_bytes, &stats.reserved_bytes, &stats.requested_bytes}) {
      auto& stat = (*bytes)[all];
      stat.current = now.current_bytes;
      stat.peak = now.peak_bytes;
      stat.allocated = now.allocated_bytes;
      stat.freed = now.freed_bytes;
    }
    for (auto* counts : {&stats.allocation, &stats.active, &stats.segment}) {
      auto& stat = (*counts)[all];
      stat.current = now.num_live;
      stat.peak = now.peak_live;
      stat.allocated = now.num_allocations;
      stat.freed = now.num_allocations - now.num_live;
    }
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    MemoryStats& now = MemoryStats::of(device);
    now.allocated_bytes = 0;
    now.freed_bytes = 0;
    now.num_allocations = 0;
  }
  void resetPeakStats(c10::DeviceIndex device) override { MemoryStats::of(device).reset_peak(); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override { return host().memory_info(device); }
};

TpuAllocator the_allocator;

} // namespace

c10::DeviceAllocator* device_allocator() {
  return &the_allocator;
}

REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &the_allocator)

} // namespace tpu
