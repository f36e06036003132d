// Device memory as PyTorch sees it: an allocation is an empty TpuBuffer; XLA allocates when a value is computed.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

namespace tpu {

c10::DeviceAllocator* device_allocator();

} // namespace tpu
