// Current device and stream of a thread, and PyTorch's device guard over them.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace tpu {

c10::DeviceIndex current_device();
// Raises DeviceIndexError for a device that does not exist.
void set_current_device(c10::DeviceIndex device);
// A missing index means the current device. Raises DeviceIndexError for a device that does not exist.
c10::DeviceIndex resolve_device(c10::Device device);

} // namespace tpu
