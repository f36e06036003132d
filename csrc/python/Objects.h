// Small helpers around Python objects that the core holds without the GIL.
#pragma once

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <mutex>
#include <string>

namespace tpu {

namespace py = pybind11;

// The Python object that answers for the core, torchtpu.runtime.bridge.Bridge. Set once, at registration.
py::handle bridge();
void set_bridge(py::object object);
// The type of arrays whose upload may still be on its way, torchtpu.runtime.transfers.Upload.
PyTypeObject* upload_type();
void set_upload_type(py::object type);

// Gives back what was released without the GIL. Needs the GIL; must not hold recorder_lock().
void drain_releases();
// Guards that queue; taken after recorder_lock().
std::mutex& release_lock();
// The interpreter is going away: leave Python objects alone from here on.
void stop_releasing();
bool interpreter_is_gone();

// Calls a method of the bridge with the GIL held; Python errors become C++ exceptions that PyTorch turns back.
template <typename... Args>
py::object call_bridge(const char* method, Args&&... args) {
  try {
    return bridge().attr(method)(std::forward<Args>(args)...);
  } catch (py::error_already_set& error) {
    error.restore();
    python_error persisted;
    persisted.persist();
    throw persisted;
  }
}

} // namespace tpu
