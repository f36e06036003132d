// Recurrent layers as one operator each, whose rule is a loop. PyTorch would take them apart, step by step.

#include <ATen/Functions.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <torch/library.h>

#include <algorithm>
#include <tuple>
#include <vector>

namespace tpu {

namespace {

enum Mode : int64_t { kRelu, kTanh, kLstm, kGru }; // as aten::_cudnn_rnn counts them

struct Stack {
  Mode mode;
  at::TensorList params;
  bool has_biases;
  int64_t num_layers;
  double dropout;
  bool train;
  bool bidirectional;
  bool batch_first;

  int64_t num_directions() const { return bidirectional ? 2 : 1; }
  int64_t num_params() const { return has_biases ? 4 : 2; } // of a direction of a layer
};

bool is_plain(const at::Tensor& tensor, const at::Tensor& input) {
  const bool same = tensor.scalar_type() == input.scalar_type() ||
                    (at::isFloatingType(tensor.scalar_type()) && at::autocast::is_autocast_enabled(at::kPrivateUse1));
  return same && tensor.device() == input.device() && !tensor._fw_grad(0).defined();
}

bool have_right_shapes(const at::Tensor& input, at::TensorList states, const Stack& stack) {
  const int64_t hidden = states[0].size(-1);
  const int64_t batch = input.size(stack.batch_first ? 0 : 1);
  const int64_t rows = hidden * (stack.mode == kLstm ? 4 : stack.mode == kGru ? 3 : 1);
  const int64_t num_directions = stack.num_directions();
  const at::DimVector of_state{stack.num_layers * num_directions, batch, hidden};
  if (std::any_of(states.begin(), states.end(), [&](const at::Tensor& s) { return s.sizes() != of_state; }) ||
      static_cast<int64_t>(stack.params.size()) != of_state[0] * stack.num_params()) {
    return false;
  }
  for (size_t i = 0; i < stack.params.size(); ++i) {
    const auto place = static_cast<int64_t>(i) % stack.num_params();
    const bool first = static_cast<int64_t>(i) < num_directions * stack.num_params();
    const int64_t columns = place == 1 ? hidden : first ? input.size(2) : num_directions * hidden;
    if (stack.params[i].sizes() != (place < 2 ? at::DimVector{rows, columns} : at::DimVector{rows})) {
      return false;
    }
  }
  return true;
}

// Whatever this refuses, PyTorch takes apart, or raises its own errors for: projections, forward-mode derivatives,
// transforms and traces. So it does with torch.backends.cudnn.flags(enabled=False), which is what the error tells
// whoever asks for a gradient of a gradient.
bool is_fused(const at::Tensor& input, at::TensorList states, const Stack& stack) {
  const auto plain = [&](const at::Tensor& tensor) { return is_plain(tensor, input); };
  return at::globalContext().userEnabledCuDNN() && !at::isTensorSubclassLike(input) &&
         !at::areAnyTensorSubclassLike(states) && !at::areAnyTensorSubclassLike(stack.params) && input.dim() == 3 &&
         input.numel() > 0 && at::isFloatingType(input.scalar_type()) && plain(input) &&
         std::all_of(states.begin(), states.end(), plain) &&
         std::all_of(stack.params.begin(), stack.params.end(), plain) && states[0].dim() == 3 &&
         have_right_shapes(input, states, stack);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> run(const at::Tensor& input, at::TensorList states, const Stack& stack) {
  at::Tensor x = stack.batch_first ? input.transpose(0, 1) : input;
  const int64_t num_directions = stack.num_directions();
  const auto num_params = static_cast<size_t>(num_directions * stack.num_params());
  std::vector<at::Tensor> last_h;
  std::vector<at::Tensor> last_c;
  for (int64_t layer = 0; layer < stack.num_layers; ++layer) {
    if (layer > 0 && stack.train && stack.dropout != 0) {
      x = at::dropout(x, stack.dropout, true);
    }
    const auto state = [&](size_t i) { return states[i].narrow(0, layer * num_directions, num_directions); };
    auto [output, h, c, reserve, buffer] =
        at::_cudnn_rnn(x, stack.params.slice(static_cast<size_t>(layer) * num_params, num_params), stack.num_params(),
                       std::nullopt, state(0), stack.mode == kLstm ? std::optional(state(1)) : std::nullopt, stack.mode,
                       states[0].size(2), 0, 1, false, 0.0, stack.train, stack.bidirectional, {}, std::nullopt);
    x = output;
    last_h.push_back(h);
    last_c.push_back(c);
  }
  const auto joined = [](const std::vector<at::Tensor>& parts) {
    return parts.size() == 1 ? parts[0] : at::cat(parts);
  };
  return {stack.batch_first ? x.transpose(0, 1) : x, joined(last_h),
          stack.mode == kLstm ? joined(last_c) : at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm(const at::Tensor& input, at::TensorList hx, at::TensorList params,
                                                    bool has_biases, int64_t num_layers, double dropout, bool train,
                                                    bool bidirectional, bool batch_first) {
  const Stack stack{kLstm, params, has_biases, num_layers, dropout, train, bidirectional, batch_first};
  return hx.size() == 2 && is_fused(input, hx, stack)
             ? run(input, hx, stack)
             : at::native::lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first);
}

template <Mode mode, auto taken_apart>
std::tuple<at::Tensor, at::Tensor> rnn(const at::Tensor& input, const at::Tensor& hx, at::TensorList params,
                                       bool has_biases, int64_t num_layers, double dropout, bool train,
                                       bool bidirectional, bool batch_first) {
  const Stack stack{mode, params, has_biases, num_layers, dropout, train, bidirectional, batch_first};
  if (!is_fused(input, hx, stack)) {
    return taken_apart(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first);
  }
  auto [output, h, c] = run(input, hx, stack);
  return {output, h};
}

using Layers = std::tuple<at::Tensor, at::Tensor> (*)(const at::Tensor&, const at::Tensor&, at::TensorList, bool,
                                                      int64_t, double, bool, bool, bool);

// Both keys: with gradients or without, and in inference mode.
void register_layers(torch::Library& m) {
  m.impl("lstm.input", &lstm);
  m.impl("gru.input", &rnn<kGru, static_cast<Layers>(&at::native::gru)>);
  m.impl("rnn_tanh.input", &rnn<kTanh, static_cast<Layers>(&at::native::rnn_tanh)>);
  m.impl("rnn_relu.input", &rnn<kRelu, static_cast<Layers>(&at::native::rnn_relu)>);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_layers(m);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  register_layers(m);
}

} // namespace

} // namespace tpu
