// Taking a call apart: which buffers it touches through which views, which numbers are inputs, and the key of the rest.

#include <ATen/Context.h>
#include <ATen/Dispatch_v2.h>
#include <c10/core/DefaultDtype.h>

#include "csrc/device/Guard.h"
#include "csrc/device/Host.h"
#include "csrc/record/Signature.h"

namespace tpu {

namespace {

// First byte of every argument's words.
enum Tag : uint64_t {
  kNoneTag = 1,
  kTensorTag,
  kUndefinedTag,
  kNumberTag,
  kRuntimeTag,
  kHostScalarTag,
  kListTag,
  kTextTag,
  kOtherTag,
};

enum TensorFlag : uint64_t {
  kIdentity = 1, // the view is the buffer's value as it stands
  kUntyped = 2,  // an empty buffer
  kConjugate = 4,
  kNegative = 8,
};

uint64_t bits_of(double value) {
  uint64_t bits = 0;
  static_assert(sizeof bits == sizeof value);
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

bool is_host_scalar(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.dim() == 0;
}

template <typename T>
ScalarUse use_of(uint32_t arg, T number, bool conjugate, bool negative) {
  if constexpr (c10::is_complex<T>::value) {
    c10::complex<double> wide(number);
    wide = conjugate ? std::conj(wide) : wide;
    return {arg, ScalarUse::kComplex, negative ? -wide : wide, 0};
  } else if constexpr (std::is_integral_v<T>) {
    return {arg, ScalarUse::kInt, {}, static_cast<int64_t>(number)};
  } else {
    const auto wide = static_cast<double>(number);
    return {arg, ScalarUse::kDouble, negative ? -wide : wide, 0};
  }
}

uint64_t next_visit = 1;

class Scanner {
 public:
  Scanner(Call& call, const Program* own) : call_(call), own_(own), visit_(next_visit++) {}

  Obstacle run() {
    call_.words.clear();
    call_.tensors.clear();
    call_.buffers.clear();
    call_.scalars.clear();
    // The default dtype decides what numbers promote to.
    call_.words.push_back(call_.op->hash + static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()));
    if (call_.op->uses_precision) {
      call_.words.push_back(static_cast<uint64_t>(at::globalContext().float32MatmulPrecision()));
    }
    for (uint32_t index = 0; index < call_.op->args.size(); ++index) {
      add(call_.arg(index), index);
    }
    call_.hash = Hash128();
    for (uint64_t word : call_.words) {
      call_.hash.mix(word);
    }
    return obstacle_;
  }

 private:
  void word(uint64_t value) { call_.words.push_back(value); }

  void add(const c10::IValue& value, uint32_t index) {
    if (value.isTensor()) {
      add_tensor(value.toTensor(), index);
    } else if (value.isNone()) {
      word(kNoneTag);
    } else if (value.isDouble() || value.isInt() || value.isBool() || value.isComplexDouble()) {
      add_number(value, index);
    } else if (value.isList()) {
      add_list(value, index);
    } else if (value.isString()) {
      word(kTextTag);
      word(hash_text(value.toStringView()));
    } else {
      word(kOtherTag); // devices, generators: known elsewhere
    }
  }

  void add_list(const c10::IValue& value, uint32_t index) {
    c10::ArrayRef<c10::IValue> list = value.toListRef();
    word(kListTag | list.size() << 8);
    for (const c10::IValue& item : list) {
      add(item, index);
    }
  }

  void add_number(const c10::IValue& value, uint32_t index) {
    const ArgInfo& info = call_.op->args[index];
    const auto type = static_cast<uint64_t>(value.isDouble() ? 1 : value.isInt() ? 2 : value.isBool() ? 3 : 4);
    if (is_runtime(value, info)) {
      word(kRuntimeTag | type << 8);
      push_use(value, index);
      return;
    }
    word(kNumberTag | type << 8);
    if (value.isComplexDouble()) {
      word(bits_of(value.toComplexDouble().real()));
      word(bits_of(value.toComplexDouble().imag()));
    } else {
      word(value.isDouble() ? bits_of(value.toDouble()) : static_cast<uint64_t>(value.toScalar().toLong()));
    }
  }

  bool is_runtime(const c10::IValue& value, const ArgInfo& info) {
    if (info.role == kStatic) {
      return false;
    }
    if (value.isComplexDouble() || value.isBool()) {
      return info.role == kRuntime && value.isComplexDouble();
    }
    const double number = value.toScalar().toDouble();
    if ((info.role & kPromoted) != 0) {
      Hash128 shape; // of everything before the number: the filled tensor
      for (uint64_t word : call_.words) {
        shape.mix(word);
      }
      return call_.op->promoted(shape.low, number);
    }
    if ((info.role & kStaticAtDefault) != 0 && info.default_number == number) {
      return false;
    }
    return (info.role & kStaticAtZero) == 0 || number != 0;
  }

  void push_use(const c10::IValue& value, uint32_t index) {
    if (value.isInt()) {
      call_.scalars.push_back({index, ScalarUse::kInt, {}, value.toInt()});
    } else if (value.isComplexDouble()) {
      call_.scalars.push_back({index, ScalarUse::kComplex, value.toComplexDouble(), 0});
    } else {
      call_.scalars.push_back({index, ScalarUse::kDouble, value.toDouble(), 0});
    }
  }

  void add_host_scalar(const at::Tensor& tensor, uint32_t index) {
    const bool wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
    word(kHostScalarTag | static_cast<uint64_t>(tensor.scalar_type()) << 8 | static_cast<uint64_t>(wrapped) << 16);
    AT_DISPATCH_V2(tensor.scalar_type(), "tpu_host_scalar", AT_WRAP([&] {
                     const scalar_t number = *static_cast<const scalar_t*>(tensor.const_data_ptr());
                     call_.scalars.push_back(use_of(index, number, tensor.is_conj(), tensor.is_neg()));
                   }),
                   AT_EXPAND(AT_ALL_TYPES), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES), AT_EXPAND(AT_COMPLEX_TYPES),
                   at::kBool, at::kHalf, at::kBFloat16);
  }

  void add_tensor(const at::Tensor& tensor, uint32_t index) {
    if (!tensor.defined()) {
      word(kUndefinedTag);
      return;
    }
    if (is_host_scalar(tensor)) {
      add_host_scalar(tensor, index);
      return;
    }
    c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    TpuBuffer* buffer = buffer_of(tensor);
    if (buffer->visit != visit_) {
      visit(buffer);
    }
    call_.tensors.push_back({&tensor, index, buffer->visit_index});
    add_view(impl, buffer);
  }

  void visit(TpuBuffer* buffer) {
    buffer->visit = visit_;
    buffer->visit_index = static_cast<uint32_t>(call_.buffers.size());
    call_.buffers.push_back(buffer);
    if (buffer->state == State::kPending && buffer->program != own_) {
      obstacle_.program = buffer->program;
    } else if (buffer->state == State::kPoisoned) {
      obstacle_.poison = buffer->error.get();
    }
  }

  void add_view(const c10::TensorImpl* impl, const TpuBuffer* buffer) {
    const c10::IntArrayRef sizes = impl->sizes();
    const auto dtype = c10::typeMetaToScalarType(impl->dtype());
    uint64_t flags = 0;
    if (impl->is_conj()) {
      flags |= kConjugate;
    }
    if (impl->is_neg()) {
      flags |= kNegative;
    }
    const Desc* desc = buffer->state == State::kEmpty ? nullptr : buffer->desc;
    if (desc == nullptr) {
      flags |= kUntyped;
    } else if (desc->dtype == dtype && impl->storage_offset() == 0 && impl->is_contiguous() &&
               c10::IntArrayRef(desc->shape) == sizes) {
      flags |= kIdentity;
    }
    word(kTensorTag | static_cast<uint64_t>(dtype) << 8 | sizes.size() << 16 |
         static_cast<uint64_t>(buffer->visit_index) << 24 | flags << 56);
    for (int64_t size : sizes) {
      word(static_cast<uint64_t>(size));
    }
    if ((flags & kIdentity) == 0) {
      word(static_cast<uint64_t>(impl->storage_offset()));
      for (int64_t stride : impl->strides()) {
        word(static_cast<uint64_t>(stride));
      }
      word(desc == nullptr ? static_cast<uint64_t>(buffer->num_bytes) : desc->hash);
    }
  }

  Call& call_;
  const Program* own_;
  uint64_t visit_;
  Obstacle obstacle_;
};

class Preparer {
 public:
  explicit Preparer(Call& call) : call_(call) {}

  void run() {
    call_.device = -1;
    for (uint32_t index = 0; index < call_.op->args.size(); ++index) {
      visit(mutable_arg(index), index);
    }
    if (call_.device < 0) {
      call_.device = device_without_tensors();
    }
    if (num_cpu_ != 0) {
      for (uint32_t index = 0; index < call_.op->args.size(); ++index) {
        move_cpu(mutable_arg(index), index);
      }
    }
  }

 private:
  c10::IValue& mutable_arg(size_t index) { return (*call_.stack)[call_.stack->size() - call_.op->args.size() + index]; }

  void visit(const c10::IValue& value, uint32_t index) {
    if (value.isTensor()) {
      visit_tensor(value.toTensor(), index);
    } else if (value.isTensorList() || value.isList()) {
      if (value.isIntList() || value.isDoubleList() || value.isBoolList()) {
        return;
      }
      for (const c10::IValue& item : value.toListRef()) {
        if (item.isTensor()) {
          visit_tensor(item.toTensor(), index);
        }
      }
    }
  }

  void visit_tensor(const at::Tensor& tensor, uint32_t index) {
    if (!tensor.defined()) {
      return;
    }
    if (tensor.device().is_privateuseone()) {
      if (call_.device < 0) {
        call_.device = tensor.device().index();
      } else if (call_.device != tensor.device().index()) {
        mixed(at::Device(c10::kPrivateUse1, call_.device), tensor.device());
      }
      return;
    }
    if (is_host_scalar(tensor) && !call_.op->args[index].written) {
      return;
    }
    if (tensor.device().is_cpu() && call_.op->args[index].takes_cpu) {
      ++num_cpu_;
      return;
    }
    mixed(at::Device(c10::kPrivateUse1, call_.device < 0 ? current_device() : call_.device), tensor.device());
  }

  [[noreturn]] void mixed(at::Device one, at::Device other) {
    const std::string fields = "op=" + call_.op->name + Host::kFieldSeparator + "one=" + one.str() +
                               Host::kFieldSeparator + "other=" + other.str();
    host().raise("MixedDevicesError", fields);
  }

  c10::DeviceIndex device_without_tensors() {
    if (call_.op->device_arg >= 0) {
      const c10::IValue& value = call_.arg(call_.op->device_arg);
      if (value.isDevice()) {
        return resolve_device(value.toDevice());
      }
    }
    return current_device();
  }

  // PyTorch lets CPU tensors index a tensor of any device.
  void move_cpu(c10::IValue& value, uint32_t index) {
    if (!call_.op->args[index].takes_cpu) {
      return;
    }
    const at::Device device(c10::kPrivateUse1, call_.device);
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().device().is_cpu()) {
      value = value.toTensor().to(device);
    } else if (value.isList()) {
      c10::List<std::optional<at::Tensor>> moved;
      for (const c10::IValue& item : value.toListRef()) {
        if (item.isTensor() && item.toTensor().defined()) {
          moved.push_back(item.toTensor().to(device));
        } else {
          moved.push_back(std::nullopt);
        }
      }
      value = moved;
    }
  }

  Call& call_;
  int num_cpu_ = 0;
};

} // namespace

Obstacle scan(Call& call, const Program* own) {
  return Scanner(call, own).run();
}

void prepare(Call& call) {
  Preparer(call).run();
}

Signature* SignatureCache::find(const Call& call) {
  auto found = table_.find(call.hash);
  if (found == table_.end() || found->second->words != call.words) {
    return nullptr;
  }
  return found->second;
}

Signature* SignatureCache::insert(std::unique_ptr<Signature> signature) {
  auto [found, fresh] = table_.emplace(signature->hash, signature.get());
  if (fresh) {
    all_.push_back(std::move(signature));
  }
  return found->second;
}

SignatureCache& signature_cache() {
  static auto* cache = new SignatureCache();
  return *cache;
}

} // namespace tpu
