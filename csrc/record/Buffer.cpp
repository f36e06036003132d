#include "csrc/record/Buffer.h"

#include <c10/core/DispatchKeySet.h>
#include <c10/core/TensorImpl.h>

#include <unordered_map>
#include <vector>

#include "csrc/device/Allocator.h"
#include "csrc/device/Hash.h"

namespace tpu {

std::mutex& recorder_lock() {
  static std::mutex* lock = new std::mutex(); // leaked: tensors may die after static destructors ran
  return *lock;
}

const Desc* intern_desc(c10::ScalarType dtype, c10::IntArrayRef shape) {
  static std::mutex* lock = new std::mutex();
  static auto* table = new std::unordered_map<uint64_t, std::vector<const Desc*>>();
  Hash128 hash;
  hash.mix(static_cast<uint64_t>(dtype));
  for (int64_t size : shape) {
    hash.mix(static_cast<uint64_t>(size));
  }
  std::lock_guard<std::mutex> guard(*lock);
  auto& bucket = (*table)[hash.high];
  for (const Desc* desc : bucket) {
    if (desc->dtype == dtype && c10::IntArrayRef(desc->shape) == shape) {
      return desc;
    }
  }
  int64_t num_elements = 1;
  for (int64_t size : shape) {
    num_elements *= size;
  }
  auto* desc = new Desc{dtype, Sizes(shape.begin(), shape.end()), num_elements,
                        num_elements * static_cast<int64_t>(c10::elementSize(dtype)), hash.low};
  bucket.push_back(desc);
  return desc;
}

static std::atomic<uint64_t> next_serial{1};

uint64_t newest_buffer_serial() {
  return next_serial.load(std::memory_order_relaxed);
}

TpuBuffer::TpuBuffer(int64_t num_bytes, c10::DeviceIndex device)
    : device(device), num_bytes(num_bytes), serial(next_serial.fetch_add(1, std::memory_order_relaxed)) {}

// A program that is being recorded may have read the value before: it must not take the new one for its input.
void TpuBuffer::replace(State fresh_state, const Desc* fresh_desc, Array fresh) {
  state = fresh_state;
  desc = fresh_desc;
  array = std::move(fresh);
  program = nullptr;
  input_of = 0;
}

void TpuBuffer::set_array(const Desc* fresh_desc, Array fresh) {
  replace(State::kArray, fresh_desc, std::move(fresh));
}

void TpuBuffer::set_abstract(const Desc* fresh_desc) {
  replace(State::kAbstract, fresh_desc, Array());
}

void TpuBuffer::set_empty() {
  replace(State::kEmpty, nullptr, Array());
}

void TpuBuffer::set_poisoned(std::shared_ptr<const std::string> first_error) {
  replace(State::kPoisoned, desc, Array());
  error = std::move(first_error);
}

void delete_buffer(void* buffer) {
  static_cast<TpuBuffer*>(buffer)->release();
  drain_if_possible();
}

c10::DataPtr make_data_ptr(TpuBuffer* buffer) {
  return {buffer, buffer, &delete_buffer, c10::Device(c10::DeviceType::PrivateUse1, buffer->device)};
}

static at::Tensor make_bare_tensor(TpuBuffer* buffer, c10::ScalarType dtype) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), buffer->num_bytes,
                                                       make_data_ptr(buffer), device_allocator(), true);
  return at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::scalarTypeToTypeMeta(dtype));
}

at::Tensor make_tensor(TpuBuffer* buffer, c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  at::Tensor tensor = make_bare_tensor(buffer, dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

at::Tensor make_contiguous_tensor(TpuBuffer* buffer, c10::ScalarType dtype, c10::IntArrayRef sizes) {
  at::Tensor tensor = make_bare_tensor(buffer, dtype);
  if (sizes.size() != 1 || sizes[0] != 0) { // a fresh TensorImpl has sizes [0]
    tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  }
  return tensor;
}

} // namespace tpu
