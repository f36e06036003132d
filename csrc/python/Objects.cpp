#include "csrc/python/Objects.h"

#include <torch/csrc/Exceptions.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "csrc/device/Array.h"

namespace tpu {

namespace {

std::atomic<bool> gone{false};
PyObject* the_bridge = nullptr;
PyObject* the_upload_type = nullptr;

struct Queue {
  std::mutex lock;
  std::vector<PyObject*> objects;
  std::atomic<bool> filled{false};
};
Queue& queue() {
  static auto* queue = new Queue();
  return *queue;
}

} // namespace

py::handle bridge() {
  return the_bridge;
}

void set_bridge(py::object object) {
  the_bridge = object.release().ptr();
}

PyTypeObject* upload_type() {
  return reinterpret_cast<PyTypeObject*>(the_upload_type);
}

void set_upload_type(py::object type) {
  the_upload_type = type.release().ptr();
}

std::mutex& release_lock() {
  return queue().lock;
}

void stop_releasing() {
  gone = true;
}

bool interpreter_is_gone() {
  return gone.load(std::memory_order_relaxed) || Py_IsInitialized() == 0;
}

// Always queued: the caller may hold recorder_lock(), under which no Python runs, and a jax.Array's destructor may
// let go of the GIL.
void release_object(void* object) {
  if (interpreter_is_gone() || object == nullptr) {
    return;
  }
  std::lock_guard<std::mutex> guard(queue().lock);
  queue().objects.push_back(static_cast<PyObject*>(object));
  queue().filled = true;
}

void drain_releases() {
  if (!queue().filled.load(std::memory_order_relaxed) || interpreter_is_gone()) {
    return;
  }
  std::vector<PyObject*> objects;
  {
    std::lock_guard<std::mutex> guard(queue().lock);
    objects.swap(queue().objects);
    queue().filled = false;
  }
  for (PyObject* object : objects) {
    Py_DECREF(object);
  }
}

void drain_if_possible() {
  if (queue().filled.load(std::memory_order_relaxed) && !interpreter_is_gone() && PyGILState_Check() != 0) {
    drain_releases();
  }
}

} // namespace tpu
