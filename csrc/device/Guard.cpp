#include "csrc/device/Guard.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <atomic>

#include "csrc/device/Host.h"
#include "csrc/device/MemoryStats.h"

namespace tpu {

namespace {

thread_local c10::DeviceIndex the_device = 0;
thread_local std::array<c10::StreamId, MemoryStats::kMaxDevices> the_streams{};
std::atomic<c10::StreamId> num_streams{1};

constexpr auto kType = c10::DeviceType::PrivateUse1;

// Work runs in the order of its recording, whatever stream it was put on: streams are names, and every order that
// stream semantics promise holds. Times are the moments at which the host saw the work finished.
struct TpuGuardImpl final : public c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    c10::Device previous = getDevice();
    if (device.index() != previous.index()) {
      setDevice(device);
    }
    return previous;
  }
  c10::Device getDevice() const override { return {kType, the_device}; }
  void setDevice(c10::Device device) const override {
    if (device.index() >= 0) {
      set_current_device(device.index());
    }
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) {
      the_device = device.index();
    }
  }
  c10::DeviceIndex deviceCount() const noexcept override { return host().device_count(); }
  c10::DeviceCapability getDeviceCapability(c10::Device /*device*/) const override {
    return {}; // every dtype
  }

  c10::Stream getStream(c10::Device device) const override {
    device = c10::Device(kType, resolve_device(device));
    return c10::Stream(c10::Stream::UNSAFE, device, the_streams[device.index()]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(kType, resolve_device(device)));
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, resolve_device(device)), num_streams.fetch_add(1));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high*/) const override {
    return getNewStream(device, 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    c10::Stream previous = getStream(stream.device());
    the_streams[stream.device_index()] = stream.id();
    return previous;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return reinterpret_cast<void*>(stream.id()); }
  bool queryStream(const c10::Stream& stream) const override { return host().query_device(stream.device_index()); }
  void synchronizeStream(const c10::Stream& stream) const override { host().synchronize(stream.device_index()); }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    const c10::DeviceIndex index = device < 0 ? the_device : device;
    ensure_exists(index);
    host().synchronize(index);
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device,
              const c10::EventFlag flag) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(), "An event of tpu:", static_cast<int>(device),
                " cannot be recorded on a stream of ", stream.device());
    const bool timed = flag == c10::EventFlag::BACKEND_DEFAULT;
    *event =
        reinterpret_cast<void*>(host().record_event(reinterpret_cast<int64_t>(*event), stream.device_index(), timed));
  }
  void block(void* /*event*/, const c10::Stream& /*stream*/) const override {
  } // one order: what was recorded ran before
  bool queryEvent(void* event) const override {
    return event == nullptr || host().query_event(reinterpret_cast<int64_t>(event));
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      host().synchronize_event(reinterpret_cast<int64_t>(event));
    }
  }
  void destroyEvent(void* event, const c10::DeviceIndex /*device*/) const noexcept override {
    if (event != nullptr) {
      host().destroy_event(reinterpret_cast<int64_t>(event));
    }
  }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex /*device*/) const override {
    TORCH_CHECK(first != nullptr && second != nullptr,
                "Both events must be recorded before their elapsed time is asked for.");
    return host().elapsed_ms(reinterpret_cast<int64_t>(first), reinterpret_cast<int64_t>(second));
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, TpuGuardImpl)

} // namespace

c10::DeviceIndex current_device() {
  return the_device;
}

void set_current_device(c10::DeviceIndex device) {
  if (device != the_device) {
    ensure_started(device);
  }
  the_device = device;
}

c10::DeviceIndex resolve_device(c10::Device device) {
  const c10::DeviceIndex index = device.has_index() ? device.index() : the_device;
  ensure_exists(index);
  return index;
}

} // namespace tpu
