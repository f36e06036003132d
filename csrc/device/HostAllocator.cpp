#include "csrc/device/HostAllocator.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace tpu {

namespace {

struct Block {
  size_t num_bytes;
  bool locked;
};

std::mutex& blocks_lock() {
  static auto* lock = new std::mutex();
  return *lock;
}
std::map<uintptr_t, Block>& blocks() {
  static auto* table = new std::map<uintptr_t, Block>();
  return *table;
}
at::HostStats& stats() {
  static auto* value = new at::HostStats();
  return *value;
}

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// A forked child inherits the memory but not the locks on its pages.
void survive_forks() {
  auto before = [] { blocks_lock().lock(); };
  auto in_parent = [] { blocks_lock().unlock(); };
  auto in_child = [] {
    for (auto& [address, block] : blocks()) {
      block.locked = false;
    }
    blocks_lock().unlock();
  };
  static const int registered = pthread_atfork(before, in_parent, in_child);
  (void)registered;
}

void free_block(void* address) {
  std::lock_guard<std::mutex> guard(blocks_lock());
  auto found = blocks().find(reinterpret_cast<uintptr_t>(address));
  if (found == blocks().end()) {
    return;
  }
  const size_t num_bytes = found->second.num_bytes;
  if (found->second.locked) {
    munlock(address, num_bytes);
  }
  blocks().erase(found);
  std::free(address);
  stats().allocations.decrease(1);
  stats().allocated_bytes.decrease(static_cast<int64_t>(num_bytes));
}

struct TpuHostAllocator final : public at::HostAllocator {
  c10::DataPtr allocate(size_t num_bytes) override {
    if (num_bytes == 0) {
      return {nullptr, nullptr, &free_block, at::kCPU};
    }
    num_bytes =
        (num_bytes + page_bytes() - 1) / page_bytes() * page_bytes(); // whole pages: they are locked and freed alone
    void* address = std::aligned_alloc(page_bytes(), num_bytes);
    TORCH_CHECK(address != nullptr, "Out of host memory: ", num_bytes, " bytes of pinned memory were asked for.");
    const bool locked = mlock(address, num_bytes) == 0;
    if (!locked) {
      TORCH_WARN_ONCE("The system refused to lock ", num_bytes, " bytes of memory (", std::strerror(errno),
                      "): the tensor is ordinary memory and is_pinned() says so. Raise the limit with 'ulimit -l'.");
    }
    survive_forks();
    std::lock_guard<std::mutex> guard(blocks_lock());
    blocks()[reinterpret_cast<uintptr_t>(address)] = {num_bytes, locked};
    stats().allocations.increase(1);
    stats().allocated_bytes.increase(static_cast<int64_t>(num_bytes));
    return {address, address, &free_block, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* dest, const void* src, std::size_t count) const override { default_copy_data(dest, src, count); }
  // Uploads hold a reference to their source tensor until they have read it, so memory is never reused too early.
  bool record_event(void* /*ptr*/, void* /*ctx*/, c10::Stream /*stream*/) override { return true; }
  void empty_cache() override {} // blocks go back to the system when they are freed
  at::HostStats get_stats() override { return stats(); }
  void reset_accumulated_stats() override {
    stats().allocations.reset_accumulated();
    stats().allocated_bytes.reset_accumulated();
  }
  void reset_peak_stats() override {
    stats().allocations.reset_peak();
    stats().allocated_bytes.reset_peak();
  }
};

TpuHostAllocator the_allocator;

} // namespace

at::HostAllocator* host_allocator() {
  return &the_allocator;
}

bool is_locked(const void* address) {
  std::lock_guard<std::mutex> guard(blocks_lock());
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  auto next = blocks().upper_bound(wanted);
  if (next == blocks().begin()) {
    return false;
  }
  const auto& [start, block] = *std::prev(next);
  return block.locked && wanted < start + block.num_bytes;
}

REGISTER_HOST_ALLOCATOR(at::kPrivateUse1, &the_allocator)

} // namespace tpu
