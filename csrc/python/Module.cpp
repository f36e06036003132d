// torchtpu._C: what Python may ask of the core.

#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "csrc/device/Generator.h"
#include "csrc/device/Guard.h"
#include "csrc/device/Hooks.h"
#include "csrc/device/Host.h"
#include "csrc/device/HostAllocator.h"
#include "csrc/device/MemoryStats.h"
#include "csrc/python/Objects.h"
#include "csrc/python/ProgramCache.h"
#include "csrc/python/PythonHost.h"
#include "csrc/record/Copy.h"
#include "csrc/record/Recorder.h"
#include "csrc/record/Register.h"

namespace tpu {

namespace {

// Registers the device. `answering` is the bridge that answers for the core.
void initialize(py::object answering) {
  set_bridge(std::move(answering));
  install_host();
  install_lowering();
  register_hooks();
  register_kernels();
}

py::dict read_counters() {
  std::lock_guard<std::mutex> guard(recorder_lock());
  py::dict result;
  result["records"] = counters().records;
  result["flushes"] = py::cast(counters().flushes);
  result["bytes_to_device"] = counters().bytes_to_device;
  result["bytes_to_host"] = counters().bytes_to_host;
  result["signatures"] = signature_cache().size();
  result["programs"] = program_cache().size();
  return result;
}

void reset_counters() {
  std::lock_guard<std::mutex> guard(recorder_lock());
  counters() = Counters();
}

py::dict memory_stats(int device) {
  MemoryStats& stats = MemoryStats::of(static_cast<c10::DeviceIndex>(device));
  py::dict result;
  result["current_bytes"] = stats.current_bytes.load();
  result["peak_bytes"] = stats.peak_bytes.load();
  result["allocated_bytes"] = stats.allocated_bytes.load();
  result["freed_bytes"] = stats.freed_bytes.load();
  result["num_allocations"] = stats.num_allocations.load();
  result["num_live"] = stats.num_live.load();
  result["peak_live"] = stats.peak_live.load();
  return result;
}

// The tensor's elements as a jax.Array of its shape, and the shape that the array still has to be given.
py::object to_array(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.device().is_privateuseone(), "Expected a tpu tensor, got one on ", tensor.device());
  ensure_started(tensor.device().index());
  at::Tensor dense = tensor.is_contiguous() && tensor.storage_offset() == 0 && !tensor.is_conj() && !tensor.is_neg() &&
                             static_cast<int64_t>(tensor.nbytes()) == buffer_of(tensor)->num_bytes
                         ? tensor
                         : tensor.resolve_conj().resolve_neg().clone(at::MemoryFormat::Contiguous);
  Array array;
  {
    py::gil_scoped_release release;
    array = array_of(buffer_of(dense), "to_jax");
  }
  return array ? py::reinterpret_borrow<py::object>(static_cast<PyObject*>(array.object())) : py::none();
}

at::Tensor from_array(py::object array, py::handle dtype, std::vector<int64_t> shape, int device) {
  const Desc* desc = intern_desc(reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type, shape);
  const auto index = static_cast<c10::DeviceIndex>(device);
  auto* buffer = new TpuBuffer(desc->num_bytes, index);
  buffer->set_array(desc, Array(array.release().ptr(), desc->num_bytes, index));
  return make_contiguous_tensor(buffer, desc->dtype, desc->shape);
}

const char* state_name(const at::Tensor& tensor) {
  std::lock_guard<std::mutex> guard(recorder_lock());
  switch (buffer_of(tensor)->state) {
    case State::kEmpty:
      return "empty";
    case State::kArray:
      return "array";
    case State::kPending:
      return "pending";
    case State::kAbstract:
      return "abstract";
    case State::kPoisoned:
      return "poisoned";
  }
  return "";
}

void bind_recorder(py::module_& m) {
  m.def(
      "flush",
      [](int device, const std::string& reason, bool keep_roots) {
        py::gil_scoped_release release;
        flush(static_cast<c10::DeviceIndex>(device), reason.c_str(), keep_roots);
      },
      py::arg("device"), py::arg("reason"), py::arg("keep_roots") = false);
  m.def(
      "flush_all",
      [](int device, const std::string& reason, bool keep_roots) {
        py::gil_scoped_release release;
        flush_all(static_cast<c10::DeviceIndex>(device), reason.c_str(), keep_roots);
      },
      py::arg("device"), py::arg("reason"), py::arg("keep_roots") = false);
  m.def("eager_mode", [] { return static_cast<int>(eager_mode()); });
  m.def("set_eager_mode", [](int mode) {
    py::gil_scoped_release release;
    set_eager_mode(static_cast<EagerMode>(mode));
  });
  m.def("set_max_nodes", &set_max_nodes);
  m.def("set_max_programs", [](size_t max_programs) { program_cache().set_max_programs(max_programs); });
  m.def("clear_programs", [] { program_cache().clear(); });
  m.def("set_optimizer_depth", [](int depth) { current_issuer().optimizer_depth = depth; });
  m.def("leave_optimizer", &leave_optimizer);
  m.def("end_zero_grad", [] {
    py::gil_scoped_release release;
    end_zero_grad();
  });
  m.def("next_batch", [] {
    py::gil_scoped_release release;
    next_batch();
  });
  m.def("set_abstract", [](bool abstract) {
    py::gil_scoped_release release;
    flush(-1, "torchtpu.abstract()");
    return std::exchange(current_issuer().abstract, abstract);
  });
  m.def("counters", &read_counters);
  m.def("reset_counters", &reset_counters);
}

void bind_device(py::module_& m) {
  m.def("set_available", &set_available);
  m.def("available", [] { return host().available(); });
  m.def("device_count", [] { return static_cast<int>(host().device_count()); });
  m.def("drain", &drain_releases);
  m.def("set_guessed_devices", &set_guessed_devices);
  m.def("set_started", [](int count) {
    if (num_started_devices.exchange(count) == 0) {
      mark_forked_children({&recorder_lock(), &release_lock()});
    }
  });
  m.def("check_device", [](int device) { ensure_exists(static_cast<c10::DeviceIndex>(device)); });
  m.def("started", [] { return num_started_devices.load(); });
  m.def("in_bad_fork", &in_bad_fork);
  m.def("current_device", [] { return static_cast<int>(current_device()); });
  m.def("set_device", [](int device) { set_current_device(static_cast<c10::DeviceIndex>(device)); });
  m.def("default_generator", [](int device) { return default_generator(static_cast<c10::DeviceIndex>(device)); });
  m.def("memory_stats", &memory_stats);
  m.def("reset_peak_memory_stats",
        [](int device) { MemoryStats::of(static_cast<c10::DeviceIndex>(device)).reset_peak(); });
  m.def("is_locked", [](uintptr_t address) { return is_locked(reinterpret_cast<void*>(address)); });
  m.def("stop", &stop_releasing);
}

void bind_tensors(py::module_& m) {
  m.def("to_array", &to_array);
  m.def("from_array", &from_array);
  m.def("state", &state_name);
  m.def("resize_storage", [](const at::Storage& storage, int64_t num_bytes) {
    resize_storage(storage.unsafeGetStorageImpl(), num_bytes);
  });
  m.def("buffer_id", [](const at::Tensor& tensor) { return buffer_of(tensor)->serial; });
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "The core of torchtpu: device, recorder and launcher.";
  m.def("initialize", &initialize);
  m.def("set_upload_type", &set_upload_type);
  bind_recorder(m);
  bind_device(m);
  bind_tensors(m);
}

} // namespace tpu
