#include "csrc/record/Register.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/SDPBackend.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "csrc/device/Allocator.h"
#include "csrc/device/Guard.h"
#include "csrc/device/Host.h"
#include "csrc/record/Copy.h"
#include "csrc/record/Recorder.h"

namespace tpu {

namespace {

constexpr auto kKey = c10::DispatchKey::PrivateUse1;

// ---- kernels written by hand: allocation, metadata, copies ----

// With torch.use_deterministic_algorithms, memory that nobody wrote is NaN or the largest number, as on the CPU.
at::Tensor filled_if_asked(at::Tensor tensor) {
  const at::Context& context = at::globalContext();
  if (context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory()) {
    at::native::fill_empty_deterministic_(tensor);
  }
  return tensor;
}

at::Tensor allocate(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                    std::optional<at::Device> device, std::optional<bool> pin_memory,
                    std::optional<at::MemoryFormat> memory_format) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only CPU tensors can be pinned.");
  TORCH_CHECK(layout.value_or(at::kStrided) == at::kStrided, "The tpu device holds dense tensors, got layout ", *layout,
              ". Keep sparse tensors on the CPU, or densify them with .to_dense().");
  const c10::DeviceIndex index = resolve_device(device.value_or(at::Device(c10::kPrivateUse1)));
  ensure_started(index);
  const at::ScalarType scalar_type = dtype.value_or(c10::get_default_dtype_as_scalartype());
  int64_t num_elements = 1;
  for (int64_t length : size) {
    TORCH_CHECK(length >= 0, "Trying to create tensor with negative dimension ", length, ": ", size);
    TORCH_CHECK(!c10::mul_overflows(num_elements, length, &num_elements),
                "Storage size calculation overflowed with sizes=", size);
  }
  auto* buffer = new TpuBuffer(num_elements * static_cast<int64_t>(c10::elementSize(scalar_type)), index);
  if (current_issuer().abstract) {
    buffer->set_abstract(intern_desc(scalar_type, size));
  }
  at::Tensor tensor = make_contiguous_tensor(buffer, scalar_type, size);
  if (memory_format.has_value() && *memory_format != at::MemoryFormat::Contiguous) {
    tensor.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  }
  return tensor;
}

at::Tensor empty_memory_format(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                               std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory, std::optional<at::MemoryFormat> memory_format) {
  return filled_if_asked(allocate(size, dtype, layout, device, pin_memory, memory_format));
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device,
                         std::optional<bool> pin_memory) {
  at::detail::check_size_nonnegative(size);
  const at::ScalarType scalar_type = dtype.value_or(c10::get_default_dtype_as_scalartype());
  const auto item_bytes = static_cast<int64_t>(c10::elementSize(scalar_type));
  const auto num_bytes =
      static_cast<int64_t>(at::detail::computeStorageNbytes(size, stride, static_cast<size_t>(item_bytes)));
  at::Tensor tensor = allocate({num_bytes / item_bytes}, scalar_type, layout, device, pin_memory, std::nullopt);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  return filled_if_asked(std::move(tensor));
}

bool has_compatible_shallow_copy_type(const at::Tensor& /*self*/, const at::Tensor& from) {
  // Our data lies behind the storage, so a plain TensorImpl serves on either side of .to(): parameters keep their
  // identity, tied weights stay tied and optimizers built before it stay right.
  return from.device().is_cpu() || from.device().is_privateuseone();
}

at::Tensor& set_nothing(at::Tensor& self) {
  return self.set_(at::empty({0}, self.options()).storage(), 0, {0}, {});
}

void record_stream(at::Tensor& /*self*/, at::Stream /*stream*/) {} // XLA keeps the arguments of running programs alive

// Asked by nn.TransformerEncoder before it makes a nested tensor of padded ones: no, and it goes on with those.
bool can_nest(const at::Tensor& /*padded*/, const at::Tensor& /*mask*/) {
  return false;
}

[[noreturn]] at::Tensor pin_memory(const at::Tensor& /*self*/, std::optional<at::Device> /*device*/) {
  host().raise("InteropError",
               "what=pin_memory() was called on a tpu tensor\x1f"
               "fix=Only CPU tensors can be pinned.");
}

bool equal(const at::Tensor& self, const at::Tensor& other) {
  return self.sizes() == other.sizes() && (self.numel() == 0 || at::eq(self, other).all().item<bool>());
}

// Results whose size is known only once they are there: computed first, then written. A resized tensor is laid out as
// the result is.
at::Tensor& write_found(const at::Tensor& found, at::Tensor& out) {
  TORCH_CHECK(out.scalar_type() == found.scalar_type(), "Expected out tensor to have dtype ", found.scalar_type(),
              ", but got ", out.scalar_type(), " instead");
  if (at::native::resize_output(out, found.sizes())) {
    out.as_strided_(found.sizes(), found.strides());
  }
  return out.copy_(found);
}

at::Tensor& masked_select_out(const at::Tensor& self, const at::Tensor& mask, at::Tensor& out) {
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  at::assert_no_overlap(out, mask);
  return write_found(at::masked_select(self, mask), out);
}

at::Tensor& nonzero_out(const at::Tensor& self, at::Tensor& out) {
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  return write_found(at::nonzero(self), out);
}

// Lengths are data, so that one program serves every batch: PyTorch asks with lists of them, which would be part of it.
at::Tensor lengths_on(c10::IntArrayRef lengths, c10::Device device) {
  return at::tensor(lengths, at::kLong).to(device);
}

// Targets that are joined to one row, as one row each.
at::Tensor rows_of(const at::Tensor& targets, c10::IntArrayRef lengths) {
  if (targets.dim() != 1) {
    return targets;
  }
  const auto num_rows = static_cast<int64_t>(lengths.size());
  const int64_t longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  const int64_t last = std::max<int64_t>(targets.numel() - 1, 0);
  at::Tensor places = at::empty({num_rows, longest}, at::kLong);
  auto* place = places.mutable_data_ptr<int64_t>();
  int64_t start = 0;
  for (const int64_t length : lengths) {
    for (int64_t i = 0; i < longest; ++i) {
      *place++ = std::min(start + i, last);
    }
    start += length;
  }
  return at::take(targets, places.to(targets.device()));
}

std::tuple<at::Tensor, at::Tensor> ctc_loss(const at::Tensor& log_probs, const at::Tensor& targets,
                                            c10::IntArrayRef input_lengths, c10::IntArrayRef target_lengths,
                                            int64_t blank, bool zero_infinity) {
  const c10::Device device = log_probs.device();
  return at::_ctc_loss(log_probs, rows_of(targets, target_lengths), lengths_on(input_lengths, device),
                       lengths_on(target_lengths, device), blank, zero_infinity);
}

at::Tensor ctc_loss_backward(const at::Tensor& grad, const at::Tensor& log_probs, const at::Tensor& targets,
                             c10::IntArrayRef input_lengths, c10::IntArrayRef target_lengths,
                             const at::Tensor& neg_log_likelihood, const at::Tensor& log_alpha, int64_t blank,
                             bool zero_infinity) {
  const c10::Device device = log_probs.device();
  return at::_ctc_loss_backward(grad, log_probs, rows_of(targets, target_lengths), lengths_on(input_lengths, device),
                                lengths_on(target_lengths, device), neg_log_likelihood, log_alpha, blank,
                                zero_infinity);
}

} // namespace

static int64_t choose_attention(const at::Tensor& query, const at::Tensor& /*key*/, const at::Tensor& /*value*/,
                                const std::optional<at::Tensor>& /*attn_mask*/, double /*dropout_p*/,
                                bool /*is_causal*/, std::optional<double> /*scale*/, bool /*enable_gqa*/) {
  const bool fused = query.dim() == 4 && at::isFloatingType(query.scalar_type());
  return static_cast<int64_t>(fused ? at::SDPBackend::overrideable : at::SDPBackend::math);
}

namespace {

// ---- the recorder, for everything else ----

struct RecordKernel final : c10::OperatorKernel {
  explicit RecordKernel(const c10::OperatorHandle& handle) : handle_(handle) {}
  void operator()(const c10::OperatorHandle& /*op*/, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
    std::call_once(once_, [this] { info_ = std::make_unique<OpInfo>(handle_); });
    record(*info_, stack);
  }

 private:
  c10::OperatorHandle handle_;
  std::once_flag once_;
  std::unique_ptr<OpInfo> info_;
};

// Operators that reach no kernel of their own: everything whose CPU form is composite is decomposed before it comes
// here.
void record_unregistered(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  static auto* lock = new std::mutex();
  static auto* table = new std::unordered_map<c10::OperatorName, std::unique_ptr<OpInfo>>();
  OpInfo* info = nullptr;
  {
    std::lock_guard<std::mutex> guard(*lock);
    auto found = table->find(op.operator_name());
    info = found == table->end() ? nullptr : found->second.get();
  }
  if (info == nullptr) { // made without the lock: it calls Python
    auto fresh = std::make_unique<OpInfo>(op);
    std::lock_guard<std::mutex> guard(*lock);
    info = table->emplace(op.operator_name(), std::move(fresh)).first->second.get();
  }
  record(*info, stack);
}

// Composite for other devices, one node here.
const std::unordered_set<std::string>& recorded_composites() {
  static const auto* names = new std::unordered_set<std::string>{
      "aten::_cudnn_rnn",
      "aten::_cudnn_rnn_backward",
      "aten::_safe_softmax",
      "aten::convolution",
      "aten::convolution_backward",
      "aten::conj_physical_",
      "aten::cummax",
      "aten::cummin",
      "aten::mish_backward",
      "aten::mode",
      "aten::silu_backward",
      "aten::_scaled_dot_product_fused_attention_overrideable",
      "aten::_scaled_dot_product_fused_attention_overrideable_backward",
      "aten::_fused_rms_norm",
      "aten::_grouped_mm",
      "aten::_fused_rms_norm_backward",
      "aten::_thnn_fused_gru_cell",
      "aten::_thnn_fused_gru_cell_backward",
      "aten::_thnn_fused_lstm_cell",
      "aten::_thnn_fused_lstm_cell_backward_impl",
  };
  return *names;
}

bool is_recorded(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  if (name.rfind("aten::", 0) != 0 || op.hasKernelForDispatchKey(kKey)) {
    return false;
  }
  if (recorded_composites().count(name) != 0) {
    return true;
  }
  // Structured operators have generated kernels that win over a fallback, so each is registered explicitly.
  return !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         (op.hasKernelForDispatchKey(c10::DispatchKey::CPU) || name.rfind("aten::_foreach_", 0) == 0);
}

torch::Library& library() {
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
  return *library;
}

void register_by_hand() {
  auto& aten = library();
  aten.impl("empty.memory_format", &empty_memory_format);
  aten.impl("empty_strided", &empty_strided);
  aten.impl("as_strided", &at::native::as_strided_tensorimpl);
  aten.impl("view", &at::native::view);
  aten.impl("_reshape_alias", &at::native::_reshape_alias);
  aten.impl("unfold", &at::native::unfold);
  aten.impl("view_as_real", &at::native::view_as_real);
  aten.impl("view_as_complex", &at::native::view_as_complex);
  aten.impl("copy_", &copy_);
  aten.impl("_copy_from_and_resize", &copy_from_and_resize);
  aten.impl("_local_scalar_dense", &local_scalar_dense);
  aten.impl("resize_", &resize_);
  aten.impl("set_.source_Tensor", &at::native::set_tensor_);
  aten.impl("set_.source_Storage", static_cast<at::Tensor& (*)(at::Tensor&, at::Storage)>(&at::native::set_));
  aten.impl("set_.source_Storage_storage_offset", &at::native::set_storage_cpu_);
  aten.impl("set_", &set_nothing);
  aten.impl("is_set_to", &at::native::is_set_to);
  aten.impl("equal", &equal);
  aten.impl("masked_select.out", &masked_select_out);
  aten.impl("nonzero.out", &nonzero_out);
  aten.impl("_ctc_loss", &ctc_loss);
  aten.impl("_ctc_loss_backward", &ctc_loss_backward);
  aten.impl("_nested_tensor_from_mask_left_aligned", &can_nest);
  aten.impl("_pin_memory", &pin_memory);
  aten.impl("record_stream", &record_stream);
  aten.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
}

} // namespace

void register_kernels() {
  register_by_hand();
  auto& dispatcher = c10::Dispatcher::singleton();
  auto& aten = library();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    auto op = dispatcher.findOp(name);
    if (op.has_value() && op->hasSchema() && is_recorded(*op)) {
      const std::string local = name.name.substr(6) + (name.overload_name.empty() ? "" : "." + name.overload_name);
      aten.impl(local.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<RecordKernel>(*op)));
    }
  }
  static torch::Library fallback(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
  fallback.fallback(torch::CppFunction::makeFromBoxedFunction<&record_unregistered>());
}

void record_copy(at::Tensor& self, const at::Tensor& src) {
  static OpInfo* info = new OpInfo(c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", ""));
  torch::jit::Stack stack{self, src, false};
  record(*info, &stack);
}

} // namespace tpu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &tpu::choose_attention)
} // namespace at::native
