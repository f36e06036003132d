// Host, answered by torchtpu.runtime.bridge.

#include "csrc/python/PythonHost.h"

#include <torch/csrc/PyInterpreter.h>

#include "csrc/device/Host.h"
#include "csrc/python/Objects.h"

namespace tpu {

namespace {

std::atomic<bool> is_available{false};
std::atomic<int> guessed_devices{1};

struct PythonHost final : public Host {
  bool available() noexcept override { return is_available.load(); }
  c10::DeviceIndex device_count() noexcept override {
    const int started = num_started_devices.load();
    return static_cast<c10::DeviceIndex>(started > 0 ? started : guessed_devices.load());
  }
  void allow_threads(const std::function<void()>& wait) override {
    if (PyGILState_Check() != 0) {
      py::gil_scoped_release release;
      wait();
    } else {
      wait();
    }
  }
  void start(c10::DeviceIndex device) override {
    py::gil_scoped_acquire gil;
    call_bridge("start", static_cast<int>(device), in_bad_fork());
  }
  void synchronize(c10::DeviceIndex device) override {
    py::gil_scoped_acquire gil;
    call_bridge("synchronize", static_cast<int>(device));
  }
  std::pair<size_t, size_t> memory_info(c10::DeviceIndex device) override {
    py::gil_scoped_acquire gil;
    return call_bridge("memory_info", static_cast<int>(device)).cast<std::pair<size_t, size_t>>();
  }
  void empty_cache() override {
    py::gil_scoped_acquire gil;
    drain_releases();
    call_bridge("empty_cache");
  }
  int64_t record_event(int64_t event, c10::DeviceIndex device, bool timed) override {
    py::gil_scoped_acquire gil;
    return call_bridge("record_event", event, static_cast<int>(device), timed).cast<int64_t>();
  }
  void destroy_event(int64_t event) noexcept override {
    if (interpreter_is_gone()) {
      return;
    }
    py::gil_scoped_acquire gil;
    try {
      call_bridge("destroy_event", event);
    } catch (python_error& error) {
      error.restore();
      PyErr_WriteUnraisable(nullptr);
    }
  }
  bool query_event(int64_t event) override {
    py::gil_scoped_acquire gil;
    return call_bridge("query_event", event).cast<bool>();
  }
  void synchronize_event(int64_t event) override {
    py::gil_scoped_acquire gil;
    call_bridge("synchronize_event", event);
  }
  double elapsed_ms(int64_t first, int64_t second) override {
    py::gil_scoped_acquire gil;
    return call_bridge("elapsed_ms", first, second).cast<double>();
  }
  bool query_device(c10::DeviceIndex device) override {
    py::gil_scoped_acquire gil;
    return call_bridge("query_device", static_cast<int>(device)).cast<bool>();
  }
  std::shared_ptr<c10::SafePyObject> make_token(void* pointer) override {
    py::gil_scoped_acquire gil;
    return std::make_shared<c10::SafePyObject>(PyLong_FromVoidPtr(pointer), getPyInterpreter());
  }
  void* read_token(const c10::SafePyObject& token) override {
    py::gil_scoped_acquire gil;
    return PyLong_AsVoidPtr(token.ptr(getPyInterpreter()));
  }

 protected:
  void throw_error(const char* name, const std::string& fields) override {
    py::gil_scoped_acquire gil;
    call_bridge("raise_error", name, fields);
  }
};

} // namespace

void install_host() {
  set_host(new PythonHost());
}

void set_available(bool available) {
  is_available = available;
}

void set_guessed_devices(int count) {
  guessed_devices = count;
}

} // namespace tpu
