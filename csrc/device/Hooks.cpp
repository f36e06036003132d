// The accelerator hooks: how generic PyTorch code finds our devices, generators and allocators.

#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "csrc/device/Generator.h"
#include "csrc/device/Guard.h"
#include "csrc/device/Hooks.h"
#include "csrc/device/Host.h"
#include "csrc/device/HostAllocator.h"
#include "csrc/record/Buffer.h"
#include "csrc/record/Copy.h"

namespace tpu {

namespace {

struct TpuHooks final : public at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return host().available(); }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override {
    return true; // JAX starts at the first use of any device
  }
  void init() const override {} // asked for by pinned memory too, which must not start JAX; kernels start it themselves
  c10::DeviceIndex deviceCount() const override { return host().device_count(); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_current_device(device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex previous = current_device();
    if (device >= 0) {
      set_current_device(device);
    }
    return previous;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override { return new_generator(device); }
  at::Device getDeviceFromPtr(void* data) const override {
    return {c10::DeviceType::PrivateUse1, static_cast<TpuBuffer*>(data)->device};
  }
  bool isPinnedPtr(const void* data) const override { return is_locked(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return host_allocator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t num_bytes) const override {
    resize_storage(storage.unsafeGetStorageImpl(), static_cast<int64_t>(num_bytes));
  }
};

} // namespace

void register_hooks() {
  static auto* hooks = new TpuHooks();
  at::RegisterPrivateUse1HooksInterface(hooks);
}

} // namespace tpu
