"""``generate()`` of a model on the device: bookkeeping on the host, a few shapes on the device.

The loop runs on a stand-in for the model that says it is on the CPU. Its inputs are moved, padded, right before the model is
called: behind the real tokens of a causal model padding changes nothing, and the cache forgets it afterwards. Tokens are chosen on
the host, from the CPU's generator, so that a sampled text is the same as on the CPU with the same seed.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.nn import functional
from torch.utils._pytree import tree_leaves
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.generation.configuration_utils import STATIC_CACHE_IMPLEMENTATIONS

from torchtpu.integrations.transformers.cache import SMALLEST_PROMPT, PowerOfTwoLayer, adopt, bucket, layers_of

_HOST = torch.device("cpu")
_SEQUENCES = {"input_ids": "zero", "decoder_input_ids": "zero", "position_ids": "last", "decoder_position_ids": "last",
              "token_type_ids": "last"}
"""Inputs with the tokens as their last dim, and what pads them: zeros, or their last entry."""
_MASKS = ("attention_mask", "decoder_attention_mask")
_NEEDS_EXACT = ("output_hidden_states", "output_attentions")
"""Requests for results with one entry a token of the prompt."""
_SMALL = 1 << 14
"""Elements up to which a transfer costs its latency and no more."""


def apply(mixin: type) -> None:
    """Wrap ``GenerationMixin.generate``."""
    original = mixin.generate  # type: ignore[attr-defined]

    @functools.wraps(original)
    def generate(self: Any, inputs: torch.Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        # Of continuous batching, the loop and its tensors are the library's own, on the device.
        is_foreign = kwargs.get("custom_generate") is not None or kwargs.get("cache_implementation") == "paged"
        if isinstance(self, _StandIn) or self.device.type != "tpu" or is_foreign:
            return original(self, inputs, *args, **kwargs)
        given = [value for value in (inputs, *kwargs.values()) if isinstance(value, torch.Tensor)]
        back_to = self.device if not given or any(t.device.type == "tpu" for t in given) else _HOST
        if getattr(kwargs.get("assistant_model"), "device", _HOST).type == "tpu":
            kwargs["assistant_model"] = stand_in_for(kwargs["assistant_model"])
        args = tuple(_callable_on_host(value) for value in args)
        kwargs = {name: _callable_on_host(value) for name, value in kwargs.items()}
        arguments = _moved((inputs, args, kwargs), _HOST)
        return _moved(original(stand_in_for(self), arguments[0], *arguments[1], **arguments[2]), back_to)

    mixin.generate = generate  # type: ignore[attr-defined]


def stand_in_for(model: Any) -> Any:
    """An object that shares everything with the model, says that it is on the CPU, and calls the model on its device."""
    stand_in = copy.copy(model)
    stand_in.__class__ = _class_for(type(model))
    stand_in.__dict__.update(_behind=model, _num_new=None, _is_static=False)
    return stand_in


@functools.cache
def _class_for(model_class: type) -> type:
    prepare = model_class.prepare_inputs_for_generation  # type: ignore[attr-defined]

    @functools.wraps(prepare)  # the library asks its signature what the model can be given
    def prepare_inputs_for_generation(self: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return self._prepare_padded(prepare, *args, **kwargs)

    return type(model_class.__name__, (_StandIn, model_class), {
        "__module__": model_class.__module__, "prepare_inputs_for_generation": prepare_inputs_for_generation})


class _StandIn:
    """What a stand-in does otherwise than its model."""

    _behind: Any
    _num_new: int | None  # real tokens of the inputs that were prepared last, if they are padded
    _is_static: bool  # a static cache was asked for

    @property
    def device(self) -> torch.device:
        return _HOST

    def __call__(self, *args: Any, **inputs: Any) -> Any:
        if args:
            names = inspect.signature(type(self._behind).forward).parameters
            inputs |= dict(zip(list(names)[1:], args, strict=False))
        return self._run(self._behind, **inputs)

    def get_compiled_call(self, compile_config: Any) -> Callable[..., Any]:
        return functools.partial(self._run, self._behind.get_compiled_call(compile_config))

    def _valid_auto_compile_criteria(self, model_kwargs: dict[str, Any], generation_config: Any) -> bool:
        if layers_of(model_kwargs.get("cache")):
            wanted = self._is_static or generation_config.compile_config is not None
            return wanted and not generation_config.disable_compile
        return self._behind._valid_auto_compile_criteria(model_kwargs, generation_config)

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any,
    ) -> None:
        """As the model does; then with layers of ours. A static cache becomes one of these too, and asks for compiled calls."""
        asked = generation_config.cache_implementation
        self._is_static = asked in STATIC_CACHE_IMPLEMENTATIONS and model_kwargs.get("cache") is None and _is_causal(self._behind)
        if self._is_static:
            generation_config.cache_implementation = None
        super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)  # type: ignore[misc]
        generation_config.cache_implementation = asked
        if _is_causal(self._behind):
            adopt(model_kwargs.get("cache"))

    def _maybe_prepare_encoder_kwargs_for_generation(
        self, inputs_tensor: torch.Tensor, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any,
    ) -> dict[str, Any]:
        """The encoder runs on the device; its results stay there."""
        if model_kwargs.get("encoder_outputs") is not None:  # moved once, not with every token
            model_kwargs["encoder_outputs"] = _moved(model_kwargs["encoder_outputs"], self._behind.device)
            return super()._maybe_prepare_encoder_kwargs_for_generation(  # type: ignore[misc]
                inputs_tensor, model_kwargs, *args, **kwargs)
        before = set(model_kwargs)
        inputs_tensor, model_kwargs = self._padded_for_encoder(inputs_tensor, model_kwargs)
        moved = _moved(model_kwargs, self._behind.device)
        made = super()._maybe_prepare_encoder_kwargs_for_generation(  # type: ignore[misc]
            inputs_tensor.to(self._behind.device), moved, *args, **kwargs)
        return {name: model_kwargs[name] if name in before and name in model_kwargs else value for name, value in made.items()}

    def _padded_for_encoder(
        self, inputs_tensor: torch.Tensor, model_kwargs: dict[str, Any],
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        """Token ids of an encoder, padded where the mask hides it."""
        is_text = inputs_tensor.dim() == 2 and not inputs_tensor.is_floating_point()
        if not (self._behind.config.is_encoder_decoder and is_text) or any(model_kwargs.get(name) for name in _NEEDS_EXACT):
            return inputs_tensor, model_kwargs
        mask = model_kwargs.get("attention_mask")
        mask = torch.ones_like(inputs_tensor) if mask is None else mask
        num_padding = bucket(inputs_tensor.shape[1], SMALLEST_PROMPT) - inputs_tensor.shape[1]
        padded_mask = functional.pad(mask, (0, num_padding))
        return functional.pad(inputs_tensor, (0, num_padding)), {**model_kwargs, "attention_mask": padded_mask}

    def _prepare_padded(
        self, prepare: Callable[..., dict[str, Any]], input_ids: torch.Tensor, *args: Any, **kwargs: Any,
    ) -> dict[str, Any]:
        """Inputs as the model's own ``prepare`` makes them, on the host; then padded."""
        self._num_new = None
        for layer in layers_of(kwargs.get("cache")):
            layer.plan(kwargs.get("next_sequence_length") or input_ids.shape[1])
        inputs = prepare(self, input_ids, *args, **kwargs)
        cache, ids = inputs.get("cache"), _token_ids(inputs)
        is_hidden = bool(layers_of(cache)) or (cache is None and _is_causal(self._behind))  # padding, from the real tokens
        if is_hidden and ids is not None and _is_paddable(inputs):
            num_new = ids.shape[1]
            longest = getattr(self._behind.config.get_text_config(decoder=True), "max_position_embeddings", None) or 1 << 62
            num_padded = max(num_new, min(bucket(num_new, SMALLEST_PROMPT), longest))
            if num_padded > num_new:
                self._num_new = num_new
                inputs = {name: _padded(name, value, num_new, num_padded) for name, value in inputs.items()}
        return inputs

    def _run(self, run: Callable[..., Any], **inputs: Any) -> Any:
        """Call the model on its device, and forget the padding. Logits come back to the host, where tokens are chosen."""
        ids = _token_ids(inputs)
        num_given = ids.shape[1] if ids is not None else 0
        num_new, self._num_new = self._num_new or num_given, None
        logits_to_keep = inputs.get("logits_to_keep")
        takes_last = False
        if isinstance(logits_to_keep, int) and 0 < logits_to_keep <= num_new < num_given:
            takes_last = True
            inputs["logits_to_keep"] = torch.arange(num_new - logits_to_keep, num_new)
        layers = layers_of(inputs.get("cache")) if ids is not None else []
        if layers and layers[0].is_initialized:
            inputs["start"] = torch.tensor(layers[0].cumulative_length)
        inputs = _moved(_together(inputs, self._behind.device), self._behind.device)
        with _counted(layers, inputs.pop("start", None), num_given, num_new):
            outputs = run(**inputs)
        _trim_attentions(outputs, layers_of(inputs.get("cache")), num_new)
        logits = outputs.logits.to(_HOST)
        outputs.logits = logits[:, :num_new] if num_new < num_given and not takes_last else logits
        return outputs


@contextlib.contextmanager
def _counted(layers: list[PowerOfTwoLayer], start: torch.Tensor | None, num_given: int, num_new: int) -> Iterator[None]:
    """Keep count of the tokens for the layers: ``num_given`` are written from ``start`` on, ``num_new`` of them remembered."""
    for layer in layers:
        layer.plan(num_given)
        layer.grow()
        layer.start = start
    try:
        yield
    finally:
        for layer in layers:
            layer.start = None
    for layer in layers:
        layer.cumulative_length += num_new - (0 if start is not None else num_given)


def _trim_attentions(outputs: Any, layers: list[PowerOfTwoLayer], num_new: int) -> None:
    """Leave those to tokens that the library's own layers would have returned, not to the memory behind or before them."""
    for name in ("attentions", "decoder_attentions"):
        found = outputs.get(name)
        if found is not None and len(found) == len(layers):
            outputs[name] = tuple(
                each if each is None or each.shape[-1] != layer.capacity else each[..., layer.seen(num_new)]
                for each, layer in zip(found, layers, strict=True))


def _token_ids(inputs: Mapping[str, Any]) -> torch.Tensor | None:
    """The decoder's, or None if it is given embeddings."""
    return inputs["decoder_input_ids"] if "decoder_input_ids" in inputs else inputs.get("input_ids")


def _is_causal(model: Any) -> bool:
    """Whether its masks follow the cache, as they must for a static one; Falcon's position biases want another mask."""
    return bool(model._can_compile_fullgraph) and not getattr(model.config, "alibi", False)


def _is_paddable(inputs: Mapping[str, Any]) -> bool:
    """Whether all that belongs to single tokens is known, so that it can be padded."""
    known = (*_SEQUENCES, *_MASKS, "logits_to_keep", "encoder_outputs", "encoder_attention_mask")
    tensors = (name for name, value in inputs.items() if isinstance(value, torch.Tensor))
    masks = [value for name in _MASKS for value in _leaves(inputs.get(name))]
    return (all(name in known for name in tensors) and all(isinstance(mask, torch.Tensor) for mask in masks)
            and not any(inputs.get(name) for name in _NEEDS_EXACT))


def _leaves(value: Any) -> list[Any]:
    return [leaf for leaf in (value.values() if isinstance(value, dict) else [value]) if leaf is not None]


def _padded(name: str, value: Any, num_new: int, num_padded: int) -> Any:
    """An input with ``num_padded`` tokens in place of ``num_new``."""
    if isinstance(value, dict) and name in _MASKS:
        return {key: _padded(name, mask, num_new, num_padded) for key, mask in value.items()}
    if not isinstance(value, torch.Tensor):
        return value
    num_padding = num_padded - num_new
    if name in _MASKS and value.dim() == 4:  # [batch, heads, query, key]: padding sees what the last token sees
        return torch.cat([value, value[:, :, -1:].expand(-1, -1, num_padding, -1)], dim=2)
    if name in (*_SEQUENCES, *_MASKS) and value.shape[-1] == num_new:
        if _SEQUENCES.get(name) != "last":
            return functional.pad(value, (0, num_padding))
        return torch.cat([value, value[..., -1:].expand(*value.shape[:-1], num_padding)], dim=-1)
    return value


def _callable_on_host(value: Any) -> Any:
    """Of a list of the user's processors or criteria, those that hold tensors on the device as callables for the host."""
    if not isinstance(value, list):
        return value
    items = [_with_its_device(item) if callable(item) else item for item in value]
    return value if all(new is old for new, old in zip(items, value, strict=True)) else type(value)(items)


def _with_its_device(item: Any) -> Any:
    leaves = tree_leaves(getattr(item, "__dict__", {}))
    device = next((leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.device.type == "tpu"), None)
    if device is None:
        return item
    call = type(item).__call__

    @functools.wraps(call)  # the library asks its signature what it wants
    def on_device(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _moved(call(self, *_moved(args, device), **_moved(kwargs, device)), _HOST)

    made = object.__new__(type(type(item).__name__, (type(item),), {"__call__": on_device}))
    made.__dict__ = item.__dict__  # one state, whoever looks at it
    return made


def _together(inputs: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Inputs with their small integers and masks moved: one transfer for all of them, taken apart on the device."""
    small = {name: value for name, value in inputs.items()
             if isinstance(value, torch.Tensor) and value.device == _HOST and value.dtype in (torch.int64, torch.bool)
             and value.numel() <= _SMALL}
    if len(small) < 2:
        return inputs
    packed = torch.cat([value.reshape(-1).long() for value in small.values()]).to(device)
    pieces = packed.split([value.numel() for value in small.values()])
    views = (piece.view(value.shape).to(value.dtype) for piece, value in zip(pieces, small.values(), strict=True))
    return inputs | dict(zip(small, views, strict=True))


def _moved(value: Any, device: torch.device) -> Any:
    """Tensors in containers moved; a cache and other objects stay as they are."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, Cache | EncoderDecoderCache):
        return value
    if isinstance(value, dict):  # of ModelOutput too, which is an ordered dict with attributes
        moved = copy.copy(value)
        for name, item in value.items():
            moved[name] = _moved(item, device)
        return moved
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        return type(value)(_moved(item, device) for item in value)
    return value


__all__ = ["apply", "stand_in_for"]
