"""Sizes that stay the same: what is padded to which size, with what, and how the true sizes are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch

from torchtpu.compile.shapes import listed
from torchtpu.errors import BatchShapeError, PrefetchArgumentError

Number = int | float | bool
SizeOf = Callable[[int], int | None]
Pad = Mapping[int | str, Any]
"""Sizes by dim, such as ``{0: 32}``; or, for one tensor, by its key: ``{"ids": {1: 128}}``."""

_TRUE_SHAPE = "_torchtpu_true_shape"
_LARGER = "On a TPU each size is a program of its own. Allow a larger one, or cut what is longer in the loader."
_LEAVE_OUT = "Make it dense in the loader, or name by key what is to be padded."
_ON_HOST = "There, padding is a program for each size. Let the loader leave it on the CPU, or name by key what is to be padded."


def true_shape(tensor: torch.Tensor) -> torch.Size:
    """The shape that a tensor of a prefetched batch had before it was padded; of any other tensor, its shape.

    To be asked of the batch itself: what is computed from a tensor does not know.
    """
    return getattr(tensor, _TRUE_SHAPE, tensor.shape)


def mask(tensor: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """Which places along ``dim`` of a prefetched tensor are true ones, not padding.

    Shapes: any -> [size of dim], on the tensor's device
    Dtypes: any -> bool
    Raises: IndexError: the tensor has no such dim
    """
    return torch.arange(tensor.shape[dim], device=tensor.device) < true_shape(tensor)[dim]


def note_true_shape(tensor: torch.Tensor, shape: torch.Size) -> None:
    """Remember what `true_shape` is to say."""
    setattr(tensor, _TRUE_SHAPE, shape)


@dataclass(frozen=True)
class _Rule:
    """One size: of dim ``dim`` of the tensors named ``key`` (None: of all that have the dim)."""

    argument: str
    key: str | None
    dim: int
    size_of: SizeOf

    def __str__(self) -> str:
        dims = f"{{{self.dim}: ...}}"
        return f"{self.argument}={dims if self.key is None else f'{{{self.key!r}: {dims}}}'}"


class Padding:
    """What the tensors of a batch are padded to.

    Raises:
        PrefetchArgumentError: ``pad``, ``bucket`` or ``fill`` is not of the form that `prefetch` describes.
    """

    def __init__(self, pad: Pad | None, bucket: Pad | None, fill: Number | Mapping[str, Number]) -> None:
        self._rules = [*_rules("pad", pad, _exactly), *_rules("bucket", bucket, _rounded)]
        places = [(rule.key, rule.dim) for rule in self._rules]
        if twice := [rule for rule in self._rules if places.count((rule.key, rule.dim)) > 1]:
            raise PrefetchArgumentError(
                expected="each dim in pad or in bucket", got=" and ".join(map(str, twice)), fix="Leave one of them out.")
        self._fills = dict(fill) if isinstance(fill, Mapping) else {}
        self._fill = 0 if isinstance(fill, Mapping) else fill
        if fill and not self._rules:
            raise PrefetchArgumentError(
                expected="pad or bucket beside fill", got=f"fill={fill!r} alone", fix="Nothing is padded without one of them.")
        for value in (self._fill, *self._fills.values()):
            if not isinstance(value, Number):
                raise PrefetchArgumentError(
                    expected="a number, or a mapping from keys to numbers, as fill", got=repr(value),
                    fix="Write fill=0, or fill={'labels': -100}.")

    def __bool__(self) -> bool:
        return bool(self._rules)

    def check(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Every dim and every key that was named is in the batch: a misspelt one would leave sizes as they are, silently.

        Raises:
            BatchShapeError: one is not.
        """
        for rule in self._rules:
            named = [t for path, t in tensors.items() if _is_named(path, rule.key)]
            if not any(-tensor.dim() <= rule.dim < tensor.dim() for tensor in named):
                raise BatchShapeError(
                    what=rule, expected="a tensor with this key and dim in the batch", got=_told(tensors),
                    fix="Correct the key or the dim; keys are those of dicts and fields, or numbers in tuples, such as '0'.")
        for key in self._fills:
            if not any(_is_named(path, key) for path in tensors):
                raise BatchShapeError(
                    what=f"fill={{{key!r}: ...}}", expected="this key in the batch", got=_told(tensors), fix="Correct the key.")

    def sizes(self, path: str, tensor: torch.Tensor) -> list[int] | None:
        """The shape to pad the tensor to; None if it has that shape.

        Raises:
            BatchShapeError: the tensor is larger, or cannot be padded.
        """
        rules = self._rules_of(path, tensor)
        if not rules:
            return None
        if tensor.is_nested or tensor.layout != torch.strided:
            raise BatchShapeError(what=_of("pad and bucket", path), expected="a dense tensor", got=_shown(tensor), fix=_LEAVE_OUT)
        sizes = list(tensor.shape)
        for dim, rule in rules.items():
            size = rule.size_of(sizes[dim])
            if type(size) is not int or size < sizes[dim]:
                least = f"a size of at least {sizes[dim]}, which dim {dim} has"
                raise BatchShapeError(what=_of(str(rule), path), expected=least, got=size, fix=_LARGER)
            sizes[dim] = size
        if sizes == list(tensor.shape):
            return None
        if tensor.device.type != "cpu":
            expected = "a tensor on the CPU"
            raise BatchShapeError(what=_of("pad and bucket", path), expected=expected, got=_shown(tensor), fix=_ON_HOST)
        return sizes

    def _rules_of(self, path: str, tensor: torch.Tensor) -> dict[int, _Rule]:
        """By dim; what names the tensor goes before what is meant for all."""
        num_dims = tensor.dim()
        rules: dict[int, _Rule] = {}
        for rule in sorted(self._rules, key=lambda rule: rule.key is not None):
            if _is_named(path, rule.key) and -num_dims <= rule.dim < num_dims:
                rules[rule.dim % num_dims] = rule
        return rules

    def fill_of(self, path: str) -> Number:
        """What a tensor is padded with."""
        return next((value for key, value in self._fills.items() if _is_named(path, key)), self._fill)


def padded(path: str, tensor: torch.Tensor, sizes: list[int], fill: Number) -> torch.Tensor:
    """A tensor on the host with its elements at the beginning of a larger one.

    Raises:
        BatchShapeError: the tensor's dtype does not hold ``fill``.
    """
    try:
        larger = tensor.new_full(sizes, fill)
    except RuntimeError as error:
        raise BatchShapeError(
            what=_of("fill", path), expected=f"a number that {tensor.dtype} holds", got=fill,
            fix="Name another one for this key in fill.") from error
    larger[tuple(slice(size) for size in tensor.shape)] = tensor
    return larger


def _of(what: str, path: str) -> str:
    return f"{what} of {path or 'the batch'}"


def _shown(tensor: torch.Tensor) -> str:
    kind = "nested" if tensor.is_nested else str(list(tensor.shape))
    return f"{str(tensor.dtype).removeprefix('torch.')} {kind} {tensor.layout} on {tensor.device}"


def _told(tensors: Mapping[str, torch.Tensor]) -> str:
    return "; ".join(f"{path or 'the batch'}: {_shown(tensor)}" for path, tensor in tensors.items()) or "no tensors"


def _is_named(path: str, key: str | None) -> bool:
    return key is None or path == key or path.endswith(f".{key}")


def _rules(argument: str, given: Pad | None, read: Callable[[Any], SizeOf | None]) -> Iterator[_Rule]:
    if not isinstance(given, Mapping | None):
        raise _malformed(argument, given)
    for key, value in (given or {}).items():
        dims = value if isinstance(key, str) else {key: value}
        if not isinstance(dims, Mapping):
            raise _malformed(argument, given)
        for dim, size in dims.items():
            size_of = read(size)
            if type(dim) is not int or size_of is None:
                raise _malformed(argument, given)
            yield _Rule(argument, key if isinstance(key, str) else None, dim, size_of)


def _malformed(argument: str, given: object) -> PrefetchArgumentError:
    size = "its size" if argument == "pad" else "a function, or a list, of sizes"
    example = "{0: 32}" if argument == "pad" else "{1: torchtpu.data.power_of_two} or {'ids': {1: [128, 512]}}"
    return PrefetchArgumentError(
        expected=f"{argument} as a mapping from a dim to {size}, or from a key to such a mapping", got=repr(given),
        fix=f"Write {argument}={example}.")


def _exactly(size: Any) -> SizeOf | None:
    return (lambda _: size) if type(size) is int and size > 0 else None


def _rounded(sizes: Any) -> SizeOf | None:
    if callable(sizes):
        return cast(SizeOf, sizes)
    if isinstance(sizes, Iterable) and not isinstance(sizes, str):
        numbers = list(sizes)
        return listed(numbers) if numbers and all(type(size) is int and size > 0 for size in numbers) else None
    return None
