"""What operators return that PyTorch has no inference for, or a broken one: called with fakes in place of the operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _lstm_cell(
    input_gates: Tensor, hidden_gates: Tensor, cx: Tensor, input_bias: Tensor | None = None, hidden_bias: Tensor | None = None
) -> tuple[Tensor, ...]:
    """PyTorch's own insists on biases."""
    return cx.new_empty(cx.shape), cx.new_empty(cx.shape), input_gates.new_empty(input_gates.shape)


def _gru_cell(
    input_gates: Tensor, hidden_gates: Tensor, hx: Tensor, input_bias: Tensor | None = None, hidden_bias: Tensor | None = None
) -> tuple[Tensor, ...]:
    return hx.new_empty(hx.shape), hx.new_empty((hx.shape[0], 5 * hx.shape[1]))


def _gru_cell_backward(grad_hy: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Tensor | None, ...]:
    batch, hidden = workspace.shape[0], workspace.shape[1] // 5
    gates = [workspace.new_empty((batch, 3 * hidden)) for _ in range(2)]
    biases = [workspace.new_empty((3 * hidden,)) if has_bias else None for _ in range(2)]
    return *gates, grad_hy.new_empty((batch, hidden)), *biases


def _rnn_layer(
    input: Tensor, weight: list[Tensor], stride: int, buffer: None, hx: Tensor, cx: Tensor | None, *options: Any
) -> tuple[Tensor, ...]:
    """What is reserved for the gradient are the cell states, in the dtype that they are computed in."""
    directions, batch, hidden = hx.shape
    time = input.shape[0]
    wide = torch.float32 if input.itemsize == 2 else input.dtype
    last, cells = ((0,), (0,)) if cx is None else (cx.shape, (directions, time, batch, hidden))
    return (input.new_empty((time, batch, directions * hidden)), hx.new_empty(hx.shape), hx.new_empty(last),
            input.new_empty(cells, dtype=wide), input.new_empty(0))


def _rnn_layer_backward(
    input: Tensor, weight: list[Tensor], stride: int, buffer: Tensor, hx: Tensor, cx: Tensor | None, *_: Any
) -> tuple[Any, ...]:
    grads = [t if t is None else t.new_empty(t.shape) for t in (input, hx, cx)]
    return *grads, [w.new_empty(w.shape) for w in weight]


def _like(place: int) -> Callable[..., Tensor]:
    """One row-major tensor with the shape and dtype of an argument."""
    return lambda *arguments, **_: arguments[place].new_empty(arguments[place].shape)


def _ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, *_: Any) -> tuple[Tensor, Tensor]:
    """Lengths in tensors do not tell how wide the widest target is, only how wide it could be."""
    time, batch, _num_classes = log_probs.shape
    widest = targets.shape[-1] if isinstance(target_lengths, Tensor) else max(target_lengths, default=0)
    return log_probs.new_empty(batch), log_probs.new_empty((batch, time, 2 * widest + 1))


def _embedding_bag_backward(grad: Tensor, *arguments: Any) -> Tensor:
    """Dense where PyTorch's own is sparse."""
    num_weights = arguments[5]
    return grad.new_empty((num_weights, grad.shape[1]))


def _multilabel_margin_loss(self: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """PyTorch's own gives the loss of a single sample a dimension; it refuses shapes as the CPU does."""
    torch.ops.aten.multilabel_margin_loss_forward(self.to("meta"), target.to("meta"), reduction)
    return self.new_empty(self.shape[:1] if reduction == 0 and self.dim() == 2 else ()), self.new_empty(target.shape)


def _histogram(self: Tensor, bins: Any = 100, **_: Any) -> tuple[Tensor, Tensor]:
    num_edges = bins.shape[0] if isinstance(bins, Tensor) else bins + 1
    return self.new_empty(num_edges - 1), self.new_empty(num_edges)


def _histogramdd(self: Tensor, bins: list[Any], **_: Any) -> Tensor:
    return self.new_empty([num.shape[0] - 1 if isinstance(num, Tensor) else num for num in bins])


def _histc(self: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Tensor:
    """PyTorch's own takes integers on a GPU only."""
    return torch.ops.aten.histc(torch.empty(self.shape, dtype=torch.float32), bins, min, max).to(self.dtype)


def _geqrf(self: Tensor) -> tuple[Tensor, Tensor]:
    *batch, rows, columns = self.shape
    return self.new_empty((*batch, columns, rows)).mT, self.new_empty((*batch, min(rows, columns)))


def _lstsq(self: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None) -> tuple[Tensor, ...]:
    """Full rank is taken for granted: without it, PyTorch leaves out the residuals."""
    torch._check(self.dim() > 1, lambda: "linalg.lstsq: input must have at least 2 dimensions")
    rows, columns = self.shape[-2:]
    vector = b.dim() < self.dim()
    torch._check(b.dim() in (self.dim(), self.dim() - 1), lambda: "linalg.lstsq: dimensions do not fit")
    right = b.unsqueeze(-1) if vector else b
    torch._check(right.shape[-2] == rows, lambda: "linalg.lstsq: input.size(-2) should match other.size(-2)")
    torch._check(b.dtype == self.dtype, lambda: "linalg.lstsq: Expected input and other to have the same dtype")
    driver = driver or "gelsy"
    batch = torch.broadcast_shapes(self.shape[:-2], right.shape[:-2])
    solution = self.new_empty((*batch, right.shape[-1], columns)).mT  # the CPU leaves gaps if there are more rows than columns
    real = torch.empty(0, dtype=self.dtype.to_real())
    residuals = real.new_empty((*batch, right.shape[-1]) if rows > columns and driver != "gelsy" else 0)
    rank = real.new_empty(0 if driver == "gels" else batch, dtype=torch.int64)
    values = real.new_empty((*batch, min(rows, columns)) if driver in ("gelsd", "gelss") else 0)
    return solution.squeeze(-1) if vector else solution, residuals, rank, values


def _lstsq_out(
    self: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None, **out: Tensor
) -> tuple[Tensor, ...]:
    """The functional form reaches the device as this one, with empty tensors to write to."""
    for given, wanted in zip(out.values(), _lstsq(self, b, rcond, driver=driver), strict=True):
        if given.shape != wanted.shape:
            given.resize_(wanted.shape).as_strided_(wanted.shape, wanted.stride())
    return tuple(out.values())


def _pow(self: Tensor, exponent: Any) -> Tensor:
    """PyTorch's own makes integers of bools to the power of a bool."""
    both_bool = self.dtype == torch.bool and isinstance(exponent, bool)
    return torch.empty_like(self) if both_bool else torch.pow(self, exponent)


def _native_multi_head_attention(*args: Any, need_weights: bool = True, **kwargs: Any) -> tuple[Any, Any]:
    """Weights that are not needed are no tensor; PyTorch's own inference makes an empty one of them."""
    op = torch.ops.aten._native_multi_head_attention.default
    place = [argument.name for argument in op._schema.arguments].index("need_weights")
    needed = args[place] if len(args) > place else need_weights
    out, weights = op(*args, **kwargs) if len(args) > place else op(*args, need_weights=need_weights, **kwargs)
    return out, weights if needed else None


def grouped_mm(
    self: Tensor, mat2: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: torch.dtype | None = None
) -> Tensor:
    """PyTorch's own knows the dtypes and the alignment of CUDA."""
    torch._check(self.dim() in (2, 3) and mat2.dim() in (2, 3), lambda: "Multiplicands must be 2D or 3D")
    same = self.is_floating_point() and self.dtype == mat2.dtype
    torch._check(same, lambda: f"Expected floats of one dtype, got {self.dtype} and {mat2.dtype}")
    torch._check(self.shape[-1] == mat2.shape[-2], lambda: "contraction dimension of mat_a and mat_b must match")
    divided = self.dim() == 2 or mat2.dim() == 2
    torch._check((offs is not None) == divided, lambda: "Have to provide offsets if there is a 2d matrix, and none otherwise")
    groups: tuple[Any, ...] = ()
    if self.dim() == mat2.dim():
        groups = (self.shape[0],) if offs is None else (offs.shape[0],)
    return self.new_empty((*groups, self.shape[-2], mat2.shape[-1]), dtype=out_dtype)


INFERENCE: dict[str, Callable[..., Any]] = {
    "aten::_native_multi_head_attention": _native_multi_head_attention,
    # Bools may be shifted by ints, which PyTorch's own does not know.
    **{f"aten::__{side}shift__.{kind}": torch.mul for side in "lr" for kind in ("Tensor", "Scalar")},
    "aten::pow.Tensor_Scalar": _pow,
    "aten::pow_.Scalar": lambda self, exponent: self,  # what does not fit back is refused before
    "aten::_grouped_mm": grouped_mm,
    "aten::_ctc_loss": _ctc_loss,
    "aten::_ctc_loss.Tensor": _ctc_loss,
    "aten::_ctc_loss_backward": _like(1),
    "aten::_ctc_loss_backward.Tensor": _like(1),
    "aten::_embedding_bag_backward": _embedding_bag_backward,
    "aten::fractional_max_pool3d_backward": _like(1),
    "aten::multi_margin_loss_backward": _like(1),
    "aten::multilabel_margin_loss_forward": _multilabel_margin_loss,
    "aten::multilabel_margin_loss_backward": _like(1),
    "aten::_upsample_bicubic2d_aa_backward": lambda grad_output, output_size, input_size, *_: grad_output.new_empty(input_size),
    "aten::histc": _histc,
    "aten::histogram.bins_tensor": _histogram,
    "aten::histogram.bin_ct": _histogram,
    "aten::geqrf": _geqrf,
    "aten::linalg_lstsq": _lstsq,
    "aten::linalg_lstsq.out": _lstsq_out,
    "aten::_histogramdd_bin_edges": lambda self, bins, **_: [self.new_empty(num + 1) for num in bins],
    "aten::_histogramdd_from_bin_cts": _histogramdd,
    "aten::_histogramdd_from_bin_tensors": _histogramdd,
    "aten::_cudnn_rnn": _rnn_layer,
    "aten::_cudnn_rnn_backward": _rnn_layer_backward,
    "aten::_thnn_fused_lstm_cell": _lstm_cell,
    "aten::_thnn_fused_gru_cell": _gru_cell,
    "aten::_thnn_fused_gru_cell_backward": _gru_cell_backward,
}
