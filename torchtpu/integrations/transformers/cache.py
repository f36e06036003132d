"""A cache of keys and values whose capacity is a power of two."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import (
    CacheLayerMixin,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    EncoderDecoderCache,
)

from torchtpu.compile.shapes import power_of_two

SMALLEST_CAPACITY = 64
"""Of a cache. Fewer tokens would cost another program, and save nothing: a TPU reads memory in larger pieces."""
SMALLEST_PROMPT = 16


def bucket(length: int, smallest: int) -> int:
    """The power of two that holds ``length``, and at least ``smallest``; a single token stays one."""
    return 1 if length == 1 else power_of_two(max(length, smallest))


class PowerOfTwoLayer(CacheLayerMixin):
    """Keys and values ``[batch, heads, capacity, head_dim]``, of which the first ``cumulative_length`` along capacity hold tokens.

    What lies behind them is garbage that the causal mask hides. A full layer doubles; a layer with a sliding window keeps all
    tokens too, and the mask hides the old ones: more memory than the window, but the same programs.

    ``start`` is the number of tokens as a tensor on the device, while the owner of the cache keeps count (a compiled graph must not
    depend on the number); None when the layer counts itself.
    """

    is_compileable = True  # asks for masks that are written out
    is_croppable = True

    def __init__(self, is_sliding: bool = False, sliding_window: int | None = None, **_: Any) -> None:
        super().__init__()
        self.sliding_window = sliding_window
        self.is_sliding = is_sliding
        self.cumulative_length = 0
        self.start: torch.Tensor | None = None
        self.capacity = 0

    @classmethod
    def of(cls, layer: Any) -> PowerOfTwoLayer:
        """A layer with the content of another one."""
        made = cls(is_sliding=layer.is_sliding, sliding_window=getattr(layer, "sliding_window", None))
        if layer.is_initialized and layer.keys is not None and layer.values is not None and layer.keys.numel():
            made.update(layer.keys, layer.values)
        return made

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Take batch, heads, sizes, dtypes and device from the first states."""
        self.device = key_states.device
        self.batch_size = key_states.shape[0]
        self.keys, self.values = key_states[:, :, :0], value_states[:, :, :0]
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new states behind the tokens; returns all of the memory."""
        num_new = key_states.shape[-2]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if self.start is None:
            self.plan(num_new)
        self.grow()
        index = torch.arange(num_new, device=key_states.device) + (self.cumulative_length if self.start is None else self.start)
        assert self.keys is not None and self.values is not None
        self.keys, self.values = _written(self.keys, index, key_states), _written(self.values, index, value_states)
        if self.start is None:
            self.cumulative_length += num_new
        return self.keys, self.values

    def plan(self, num_new: int) -> None:
        """Decide on a capacity for so many more tokens."""
        self.capacity = self._capacity_for(num_new)

    def grow(self) -> None:
        """Have the memory that was planned, and that can be written now."""
        if not torch.compiler.is_compiling():  # a compiled graph finds it done
            self._thaw()
        if self.keys is not None and self.values is not None and self.keys.shape[2] < self.capacity:
            self.keys, self.values = (
                torch.cat([t, t.new_zeros(*t.shape[:2], self.capacity - t.shape[2], t.shape[3])], dim=2)
                for t in (self.keys, self.values))

    def _thaw(self) -> None:
        """What was made in inference mode cannot be written outside of it."""
        if self.keys is not None and self.values is not None and self.keys.is_inference() and not torch.is_inference_mode_enabled():
            self.keys, self.values = self.keys.clone(), self.values.clone()

    def _capacity_for(self, num_new: int) -> int:
        if self.start is not None:  # planned already, and a compiled graph must not depend on the number of tokens
            return self.capacity
        return max(self.capacity, bucket(self.cumulative_length + bucket(num_new, SMALLEST_PROMPT), SMALLEST_CAPACITY))

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and first position of what ``update`` will return for so many new tokens."""
        return self._capacity_for(query_length), 0

    def get_seq_length(self) -> int:
        """Tokens held; a tensor on the device while the owner keeps count."""
        return self.cumulative_length if self.start is None else self.start  # type: ignore[return-value]

    def get_max_length(self) -> int:
        """The capacity: what masks and position biases are made for. Longer texts grow it."""
        return self.capacity

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last ``-tokens_to_remove`` tokens; a positive number is refused, as by the library's own layers."""
        if tokens_to_remove > 0:
            raise ValueError(f"crop takes minus the number of tokens to remove, got {tokens_to_remove}.")
        self.cumulative_length = max(0, self.cumulative_length + tokens_to_remove)

    def seen(self, num_new: int) -> slice:
        """The tokens that the library's own layer would have returned with the ``num_new`` last ones."""
        before = self.cumulative_length - num_new
        return slice(max(0, before - self.sliding_window + 1) if self.sliding_window else 0, self.cumulative_length)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each sequence of the batch."""
        self._of_batch(lambda t: t.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep these sequences of the batch."""
        self._of_batch(lambda t: t[indices.to(t.device)])

    def _of_batch(self, change: Any) -> None:
        if self.keys is not None and self.values is not None:
            keys, values = change(self.keys), change(self.values)
            self.keys, self.values, self.batch_size = keys, values, keys.shape[0]


def _written(memory: torch.Tensor, index: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    """The memory with new states; in place, except where autograd may have kept it for a backward pass."""
    if memory.requires_grad or states.requires_grad:
        return memory.index_copy(2, index, states)
    return memory.index_copy_(2, index, states)


def adopt(cache: Any) -> bool:
    """Give a dynamic cache layers of ours, with what it holds; whether it has them now.

    A cache with a layer of another kind (linear attention, quantized, offloaded, a window that has dropped tokens) stays as it is.
    """
    if isinstance(cache, EncoderDecoderCache):
        return adopt(cache.self_attention_cache)
    if type(cache) is not DynamicCache or cache.offloading or not all(map(_is_convertible, cache.layers)):
        return False
    if cache.layer_class_to_replicate is not None:
        if cache.layer_class_to_replicate not in (DynamicLayer, PowerOfTwoLayer):
            return False
        cache.layer_class_to_replicate = PowerOfTwoLayer
    cache.layers = [layer if isinstance(layer, PowerOfTwoLayer) else PowerOfTwoLayer.of(layer) for layer in cache.layers]
    return True


def layers_of(cache: Any) -> list[PowerOfTwoLayer]:
    """The layers of ours in a cache: all of its decoder, or none."""
    cache = getattr(cache, "self_attention_cache", cache)
    return [layer for layer in getattr(cache, "layers", ()) if isinstance(layer, PowerOfTwoLayer)]


def _is_convertible(layer: Any) -> bool:
    if type(layer) is DynamicSlidingWindowLayer:
        return not layer.is_initialized or layer.get_seq_length() == 0
    return type(layer) in (DynamicLayer, PowerOfTwoLayer)
