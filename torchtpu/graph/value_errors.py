"""Operators that the CPU may refuse because of a value, by family (see ``roles``).

The device cannot raise in the middle of a program. Out of bounds it clamps reads and drops writes, an integer divided by zero is
-1, and so on. In debug mode the recorder lets the CPU do these operators first (csrc/record/Rehearsal.cpp), so that the error is
the CPU's.
"""

from __future__ import annotations

_INDEXING = (
    "embedding", "embedding_dense_backward", "embedding_renorm", "gather", "index", "index_add", "index_copy", "index_fill",
    "index_put", "index_put_impl", "index_reduce", "index_select", "put", "scatter", "scatter_add", "scatter_reduce", "take",
    "unsafe_index", "unsafe_index_put",
)
_LAYERS = (
    "ctc_loss", "embedding_bag", "embedding_bag_forward_only", "max_unpool2d", "max_unpool3d", "segment_reduce",
    "fractional_max_pool2d", "fractional_max_pool3d",
)
_LOSSES = (
    "binary_cross_entropy", "multi_margin_loss", "multilabel_margin_loss_forward", "nll_loss_forward", "nll_loss2d_forward",
)
_NUMBERS = ("assert_async", "bincount", "linalg_svd", "histc", "masked_scatter", "nonzero_static", "repeat_interleave")
_INTEGER_DIVISION = ("div", "floor_divide", "fmod", "remainder")
_RANDOM = ("bernoulli", "binomial", "multinomial", "normal", "poisson", "sample_dirichlet", "standard_gamma")

VALUE_ERRORS_OF_FLOATS = frozenset(("histc",))
"""What the CPU has for floats alone: integers, which the device takes too, have no wrong values here, and are not rehearsed."""

VALUE_ERRORS = frozenset((*_INDEXING, *_LAYERS, *_LOSSES, *_NUMBERS, *_INTEGER_DIVISION, *_RANDOM))
