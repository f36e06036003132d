// Page-locked host memory.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace tpu {

at::HostAllocator* host_allocator();
// True if the address lies in memory that is locked indeed, not merely asked to be.
bool is_locked(const void* address);

} // namespace tpu
