// What a storage of the tpu device holds: a value, the promise of one, or nothing at all.
//
// A storage's DataPtr points at a TpuBuffer. Tensors over it are views: sizes, strides and offset in TensorImpl, never
// data. All fields are guarded by recorder_lock(), except the reference count.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/core/Storage.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "csrc/device/Array.h"

namespace tpu {

class Program;

using Sizes = c10::SmallVector<int64_t, 6>;

// Shape and dtype of a buffer's value; row-major order of the shape is the order of memory. Interned: compare by
// address.
struct Desc {
  c10::ScalarType dtype;
  Sizes shape;
  int64_t num_elements;
  int64_t num_bytes;
  uint64_t hash; // of the contents, equal across processes
};
const Desc* intern_desc(c10::ScalarType dtype, c10::IntArrayRef shape);

enum class State : uint8_t {
  kEmpty,    // no value yet; reading gives zeros
  kArray,    // a finished (or running) jax.Array
  kPending,  // output `value` of `program`
  kAbstract, // a shape without data, see torchtpu.abstract()
  kPoisoned, // the program that should have computed it failed
};

struct TpuBuffer {
  TpuBuffer(int64_t num_bytes, c10::DeviceIndex device);
  TpuBuffer(const TpuBuffer&) = delete;

  void retain() { references.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      delete this;
    }
  }
  void set_array(const Desc* fresh_desc, Array fresh);
  void set_abstract(const Desc* fresh_desc);
  void set_empty();
  void set_poisoned(std::shared_ptr<const std::string> first_error);

  std::atomic<int64_t> references{1};
  State state = State::kEmpty;
  c10::DeviceIndex device;
  int64_t num_bytes;
  const Desc* desc = nullptr; // null while empty and untyped
  Array array;
  uint64_t serial;           // age; unique in the process
  bool computed = false;     // made as the result of an operator, not as memory to be filled
  uint64_t first_reader = 0; // serial of the first program that it was an input of

  Program* program = nullptr; // while pending; the program holds a reference to this buffer, so it outlives the pointer
  uint32_t value = 0;
  uint64_t member_of = 0; // serial of the program that holds a reference

  uint64_t input_of = 0; // serial of the program in which this buffer's array is input number `input_index`
  uint32_t input_index = 0;

  uint64_t visit = 0; // record() call that saw this buffer last, and the number it gave it
  uint32_t visit_index = 0;

  std::shared_ptr<const std::string> error; // of a poisoned buffer: the first error

 private:
  void replace(State fresh_state, const Desc* fresh_desc, Array fresh);
};

uint64_t newest_buffer_serial();

// Guards buffers, programs and the signature cache. Order: GIL, then this lock; no Python runs under it.
std::mutex& recorder_lock();

inline TpuBuffer* buffer_of(const c10::StorageImpl* storage) {
  // The pointer, not the deleter context: saving wraps storages with a context of its own.
  return static_cast<TpuBuffer*>(const_cast<void*>(storage->data_ptr().get()));
}
inline TpuBuffer* buffer_of(const at::TensorBase& tensor) {
  return buffer_of(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
}

void delete_buffer(void* buffer);              // gives up one reference
c10::DataPtr make_data_ptr(TpuBuffer* buffer); // takes over one reference
at::Tensor make_tensor(TpuBuffer* buffer, c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides);
at::Tensor make_contiguous_tensor(TpuBuffer* buffer, c10::ScalarType dtype, c10::IntArrayRef sizes);

} // namespace tpu
