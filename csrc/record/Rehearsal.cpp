#include "csrc/record/Rehearsal.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>

namespace tpu {

namespace {

at::Tensor on_cpu(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true) : tensor;
}

c10::IValue on_cpu(const c10::IValue& value) {
  if (value.isTensor()) {
    return on_cpu(value.toTensor());
  }
  if (value.isDevice()) {
    return at::Device(at::kCPU);
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      list.push_back(on_cpu(tensor));
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& item : value.toOptionalTensorVector()) {
      list.push_back(item.has_value() ? std::make_optional(on_cpu(*item)) : std::nullopt);
    }
    return list;
  }
  return value;
}

} // namespace

void rehearse(const Call& call) {
  at::AutoDispatchBelowAutograd no_gradients;
  torch::jit::Stack stack;
  for (size_t index = 0; index < call.op->args.size(); ++index) {
    // A generator of its own: the rehearsal draws none of the CPU's random numbers.
    const bool generator = static_cast<int>(index) == call.op->generator_arg;
    stack.push_back(generator ? c10::IValue(at::make_generator<at::CPUGeneratorImpl>(0)) : on_cpu(call.arg(index)));
  }
  call.op->handle.callBoxed(&stack);
}

} // namespace tpu
