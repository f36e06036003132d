"""Connectionist temporal classification: sums over all alignments of a target with a longer input, and their gradient.

A path walks over the target's labels with a blank before, between and behind them, staying, going on by one, or leaving out
a blank between two different labels. Two scans over time, in the logarithm, sum the paths up to and from each place.
Source: Graves et al., Connectionist Temporal Classification (2006), equations 6 to 16; aten/src/ATen/native/LossCTC.cpp.

T time, N batch, C classes, L = 2 S + 1 places in a target of up to S labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from torchtpu.rules._numbers import narrow_loops
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower

Lengths = Sequence[int] | Array


class _Paths(NamedTuple):
    logp_TNL: Array  # of the label at each place
    label_NL: Array
    skips_NL: Array  # whether the blank before a place may be left out
    input_length_N1: Array
    last_N1: Array  # the last place

    @property
    def place_1L(self) -> Array:
        return lax.iota(np.int32, self.label_NL.shape[1])[None]

    @property
    def ends_NL(self) -> Array:
        """Where a path may end: at the last blank, and at the label before it."""
        return (self.place_1L <= self.last_N1) & (self.place_1L >= self.last_N1 - 1)


def _paths(log_probs: Array, targets: Array, input_lengths: Lengths, target_lengths: Lengths, blank: int, places: int) -> _Paths:
    longest, batch = places // 2, log_probs.shape[1]
    inputs, lengths = (jnp.asarray(lengths).astype(np.int32) for lengths in (input_lengths, target_lengths))
    targets = targets.astype(np.int32)
    if targets.ndim == 1:  # one behind the other
        places_NS = (jnp.cumsum(lengths) - lengths)[:, None] + lax.iota(np.int32, longest)
        targets = jnp.take(targets, places_NS, mode="clip") if longest else targets.reshape(batch, 0)
    targets = targets[:, :longest]
    blanks = jnp.full((batch, 1), blank, np.int32)
    between = jnp.stack([jnp.broadcast_to(blanks, targets.shape), targets], -1).reshape(batch, places - 1)
    label_NL = jnp.concatenate([between, blanks], 1)
    logp_TNL = jnp.take_along_axis(log_probs, label_NL[None], 2, mode="clip")
    skips = (label_NL != blank) & (label_NL != _shifted(label_NL, 2, blank))
    return _Paths(logp_TNL, label_NL, skips, inputs[:, None], 2 * lengths[:, None])


def _shifted(x_NL: Array, by: int, fill: float) -> Array:
    """Each place gets what is ``by`` places before it."""
    return lax.pad(x_NL, jnp.asarray(fill, x_NL.dtype), [(0, 0, 0), (by, -by, 0)])


def _walk(paths: _Paths, starts_TN1: Array, start_NL: Array, skips_NL: Array, step: int) -> Array:
    """The logarithm of the sum over all paths from the start to each time and place, which is included."""
    nowhere = jnp.full(start_NL.shape, -np.inf, paths.logp_TNL.dtype)
    start = jnp.where(start_NL, 0, nowhere)

    def advance(before_NL: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        logp_NL, starts_N1 = now
        ways = (
            before_NL, _shifted(before_NL, step, -np.inf), jnp.where(skips_NL, _shifted(before_NL, 2 * step, -np.inf), -np.inf))
        most = jnp.maximum(jnp.maximum(ways[0], ways[1]), ways[2])
        most = jnp.where(most == -np.inf, 0, most)
        total = most + jnp.log(sum(jnp.exp(way - most) for way in ways))
        after = logp_NL + jnp.where(starts_N1, start, total)
        return after, after

    with narrow_loops(nowhere.dtype):
        return lax.scan(advance, nowhere, (paths.logp_TNL, starts_TN1), reverse=step < 0)[1]


def _times(paths: _Paths) -> Array:
    return lax.iota(np.int32, paths.logp_TNL.shape[0])[:, None, None]


@lower("aten::_ctc_loss", "aten::_ctc_loss.Tensor")
def aten__ctc_loss(
    ctx: RuleContext, log_probs: Array, targets: Array, input_lengths: Lengths, target_lengths: Lengths, blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[Array, Array]:
    """The negative log-likelihood of each target, and the sums over paths up to each time and place.

    Differs: those sums go on behind the end of an input, where ATen leaves memory unset.
    """
    paths = _paths(log_probs, targets, input_lengths, target_lengths, blank, ctx.outputs[1].shape[2])
    starts = jnp.broadcast_to(_times(paths) == 0, (log_probs.shape[0], log_probs.shape[1], 1))
    log_alpha_TNL = _walk(paths, starts, paths.place_1L <= jnp.minimum(paths.last_N1, 1), paths.skips_NL, 1)
    final_NL = jnp.sum(jnp.where(_times(paths) == paths.input_length_N1 - 1, log_alpha_TNL, 0), 0)
    likelihood = jax.nn.logsumexp(jnp.where(paths.ends_NL, final_NL, -np.inf), 1, keepdims=True)
    nothing = jnp.where(paths.last_N1 == 0, 0, -np.inf)
    likelihood = jnp.where(paths.input_length_N1 == 0, nothing.astype(likelihood.dtype), likelihood)
    return -likelihood[:, 0], jnp.swapaxes(log_alpha_TNL, 0, 1)


@lower("aten::_ctc_loss_backward", "aten::_ctc_loss_backward.Tensor")
def aten__ctc_loss_backward(
    ctx: RuleContext, grad: Array, log_probs: Array, targets: Array, input_lengths: Lengths, target_lengths: Lengths,
    neg_log_likelihood: Array, log_alpha: Array, blank: int, zero_infinity: bool = False,
) -> Array:
    """The gradient of log-probabilities that are normalised: probability less the share of paths that use it."""
    paths = _paths(log_probs, targets, input_lengths, target_lengths, blank, log_alpha.shape[2])
    starts = _times(paths) == paths.input_length_N1 - 1
    log_beta_TNL = _walk(paths, starts, paths.ends_NL, _shifted(paths.skips_NL, -2, False), -1)
    log_alpha_TNL, loss_N1 = jnp.swapaxes(log_alpha, 0, 1), neg_log_likelihood[:, None]
    used = (log_alpha_TNL > -np.inf) & (log_beta_TNL > -np.inf)
    share_TNL = jnp.where(used, jnp.exp(log_alpha_TNL + log_beta_TNL - paths.logp_TNL + loss_N1), 0)
    is_label = (paths.label_NL[:, :, None] == lax.iota(np.int32, log_probs.shape[2])).astype(share_TNL.dtype)
    used_TNC = jnp.einsum("tnl,nlc->tnc", share_TNL, is_label, precision=lax.Precision.HIGHEST)
    result = (jnp.exp(log_probs) - used_TNC) * grad[:, None]
    result = jnp.where(loss_N1 == np.inf, 0 if zero_infinity else np.nan, result)
    return jnp.where(_times(paths) < paths.input_length_N1, result, 0)
