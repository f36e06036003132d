#include "csrc/record/Copy.h"

#include <ATen/Functions.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <c10/core/DeviceGuard.h>

#include <cstring>

#include "csrc/device/Guard.h"
#include "csrc/device/Host.h"
#include "csrc/device/HostAllocator.h"
#include "csrc/record/Lowering.h"
#include "csrc/record/Recorder.h"
#include "csrc/record/Register.h"

namespace tpu {

namespace {

// A tensor that is its buffer's whole value, in the order of memory and without lazy bits.
bool is_whole(const at::Tensor& tensor, const TpuBuffer& buffer) {
  return tensor.storage_offset() == 0 && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg() &&
         static_cast<int64_t>(tensor.nbytes()) == buffer.num_bytes;
}

// The same elements as a tensor that is its buffer's whole value; recorded if it takes work.
at::Tensor as_whole(const at::Tensor& tensor) {
  if (is_whole(tensor, *buffer_of(tensor))) {
    return tensor;
  }
  at::Tensor dense = at::empty(tensor.sizes(), tensor.options(), at::MemoryFormat::Contiguous);
  return copy_(dense, tensor, false);
}

// The beginning of its buffer's value, and at least half of it: quicker to read with the rest than to cut out, which is
// a program of its own for each size.
bool is_most(const at::Tensor& tensor, TpuBuffer* buffer) {
  std::lock_guard<std::mutex> guard(recorder_lock());
  const auto num_bytes = static_cast<int64_t>(tensor.nbytes());
  return buffer->desc != nullptr && buffer->desc->dtype == tensor.scalar_type() && tensor.storage_offset() == 0 &&
         tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg() && num_bytes < buffer->num_bytes &&
         buffer->desc->num_bytes == buffer->num_bytes && 2 * num_bytes >= buffer->num_bytes;
}

void count_bytes(int64_t Counters::* counter, int64_t num_bytes) {
  std::lock_guard<std::mutex> guard(recorder_lock());
  counters().*counter += num_bytes;
}

void upload_into(const at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  const c10::DeviceIndex device = self.device().index();
  ensure_started(device);
  at::Tensor staged = src.to(self.scalar_type()).expand(self.sizes()).resolve_conj().resolve_neg().contiguous();
  TpuBuffer* buffer = buffer_of(self);
  if (!is_whole(self, *buffer)) {
    at::Tensor whole = at::empty(self.sizes(), self.options(), at::MemoryFormat::Contiguous);
    upload_into(whole, staged, non_blocking);
    copy_(const_cast<at::Tensor&>(self), whole, false);
    return;
  }
  const Desc* desc = intern_desc(self.scalar_type(), self.sizes());
  count_bytes(&Counters::bytes_to_device, desc->num_bytes);
  if (current_issuer().abstract || buffer->state == State::kAbstract) {
    std::lock_guard<std::mutex> guard(recorder_lock());
    buffer->set_abstract(desc);
    return;
  }
  // In the background only from locked memory, as on CUDA: the caller promises to leave it alone until then.
  const bool later = non_blocking && is_locked(staged.const_data_ptr());
  Array array = lowering().upload(staged.const_data_ptr(), desc, device, later ? &staged : nullptr);
  std::lock_guard<std::mutex> guard(recorder_lock());
  buffer->set_array(desc, std::move(array));
}

// Storages never written read as zeros.
void read_bytes(const Array& array, const at::Tensor& host_tensor) {
  const auto num_bytes = static_cast<int64_t>(host_tensor.nbytes());
  if (!array) {
    std::memset(host_tensor.mutable_data_ptr(), 0, num_bytes);
  } else if (num_bytes != 0) {
    lowering().download(array, host_tensor.mutable_data_ptr(), num_bytes);
  }
}

void download_from(const at::Tensor& self, const at::Tensor& src) {
  ensure_started(src.device().index());
  lowering().note_sync("copy to the host");
  if (TpuBuffer* buffer = buffer_of(src); is_most(src, buffer)) {
    Array array = array_of(buffer, "copy to the host");
    count_bytes(&Counters::bytes_to_host, buffer->num_bytes);
    const int64_t num_elements = buffer->num_bytes / static_cast<int64_t>(src.itemsize());
    at::Tensor all = at::empty({num_elements}, src.options().device(at::kCPU).pinned_memory(false));
    read_bytes(array, all);
    self.copy_(all.narrow(0, 0, src.numel()).view(src.sizes()));
    return;
  }
  at::Tensor whole = as_whole(src);
  Array array = array_of(buffer_of(whole), "copy to the host");
  count_bytes(&Counters::bytes_to_host, static_cast<int64_t>(whole.nbytes()));
  const bool direct = self.scalar_type() == whole.scalar_type() && self.sizes() == whole.sizes() &&
                      self.is_contiguous() && !self.is_conj() && !self.is_neg();
  at::Tensor host_tensor =
      direct ? self : at::empty(whole.sizes(), whole.options().device(at::kCPU).pinned_memory(false));
  read_bytes(array, host_tensor);
  if (!direct) {
    self.copy_(host_tensor);
  }
}

void copy_between_devices(const at::Tensor& self, const at::Tensor& src) {
  ensure_started(src.device().index());
  at::Tensor whole = src.scalar_type() == self.scalar_type() ? as_whole(src) : as_whole(src.to(self.scalar_type()));
  Array array = array_of(buffer_of(whole), "copy between devices");
  const Desc* desc = intern_desc(whole.scalar_type(), whole.sizes());
  const c10::DeviceGuard guard(self.device());
  at::Tensor moved = at::empty(whole.sizes(), self.options(), at::MemoryFormat::Contiguous);
  if (array) {
    Array there = lowering().to_device(array, desc, self.device().index());
    std::lock_guard<std::mutex> lock(recorder_lock());
    buffer_of(moved)->set_array(desc, std::move(there));
  }
  copy_(const_cast<at::Tensor&>(self), moved, false);
}

} // namespace

at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  TORCH_CHECK(self.defined() && src.defined(), "copy_: both tensors must be defined.");
  if (self.is_same(src)) {
    return self;
  }
  if (src.is_complex() && !self.is_complex() && self.scalar_type() != at::kBool) {
    TORCH_WARN_ONCE("Casting complex values to real discards the imaginary part");
  }
  const bool to_tpu = self.device().is_privateuseone();
  const bool from_tpu = src.device().is_privateuseone();
  if (to_tpu && from_tpu) {
    if (self.device() == src.device()) {
      record_copy(self, src);
    } else {
      copy_between_devices(self, src);
    }
  } else if (to_tpu) {
    upload_into(self, src.device().is_cpu() ? src : src.to(at::kCPU), non_blocking);
  } else {
    download_from(self, src);
  }
  return self;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  at::native::resize_output(dst, self.sizes());
  const_cast<at::Tensor&>(dst).copy_(self);
  return dst;
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  ensure_started(self.device().index());
  lowering().note_sync("item");
  at::Tensor whole = as_whole(self);
  Array array = array_of(buffer_of(whole), "item");
  count_bytes(&Counters::bytes_to_host, static_cast<int64_t>(whole.nbytes()));
  at::Tensor host_tensor = at::empty({}, whole.options().device(at::kCPU).pinned_memory(false));
  read_bytes(array, host_tensor);
  return at::_local_scalar_dense(host_tensor);
}

void resize_storage(c10::StorageImpl* storage, int64_t num_bytes) {
  TpuBuffer* old = buffer_of(storage);
  const int64_t kept = std::min(old->num_bytes, num_bytes);
  const c10::Device device(c10::DeviceType::PrivateUse1, old->device);
  if (num_bytes == old->num_bytes) {
    return;
  }
  auto* fresh = new TpuBuffer(num_bytes, old->device);
  c10::DataPtr previous = storage->set_data_ptr(make_data_ptr(fresh)); // keeps `old` alive until the bytes are copied
  storage->set_nbytes(num_bytes);
  bool has_value = false;
  {
    std::lock_guard<std::mutex> guard(recorder_lock());
    has_value = old->state != State::kEmpty;
    if (old->state == State::kAbstract) {
      fresh->set_abstract(intern_desc(c10::ScalarType::Byte, num_bytes));
      has_value = false;
    }
  }
  if (has_value && kept > 0) {
    const auto bytes = at::TensorOptions().dtype(at::kByte).device(device);
    auto over = [&](c10::DataPtr&& pointer, int64_t size) {
      c10::Storage whole(c10::Storage::use_byte_size_t(), size, std::move(pointer), nullptr, false);
      return at::empty({0}, bytes).set_(whole, 0, {kept}, {1});
    };
    fresh->retain();
    at::Tensor target = over(make_data_ptr(fresh), num_bytes);
    record_copy(target, over(std::move(previous), old->num_bytes));
  }
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef size,
                          std::optional<at::MemoryFormat> memory_format) {
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  if (self.sizes() != size) {
    const int64_t item_bytes = static_cast<int64_t>(self.itemsize());
    impl->set_sizes_contiguous(size);
    const int64_t needed = (impl->storage_offset() + self.numel()) * item_bytes;
    c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
    const auto bytes_before = static_cast<int64_t>(storage->nbytes());
    if (self.numel() != 0 && needed > bytes_before) {
      TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
      resize_storage(storage, needed);
    }
    const at::Context& context = at::globalContext();
    if (context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory()) {
      at::native::fill_resize_deterministic_(self, bytes_before);
    }
  }
  if (memory_format.has_value() && *memory_format != at::MemoryFormat::Preserve) {
    impl->empty_tensor_restride(*memory_format);
  }
  return self;
}

} // namespace tpu
