"""``prefetch``: what a user calls, and the iterators that come of it."""

from __future__ import annotations

import dataclasses
import os
import time
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from torchtpu import _C
from torchtpu.data.moving import Mover
from torchtpu.data.padding import Number, Pad, Padding
from torchtpu.data.producer import End, Producer
from torchtpu.data.report import Clock, LoadingReport
from torchtpu.data.states import State, state_of
from torchtpu.device.patches import hide_from_dynamo
from torchtpu.errors import PrefetchArgumentError, PrefetchForkError, PrefetchRestartError, PrefetchStateError
from torchtpu.runtime import step_hooks


def prefetch(
    loader: Iterable[Any], device: torch.device | str | int, depth: int = 2, *, pad: Pad | None = None, bucket: Pad | None = None,
    fill: Number | Mapping[str, Number] = 0,
) -> Prefetched:
    """Batches of ``loader`` on ``device``, loaded, padded and moved by a thread of their own while the program works on others.

    The result is iterated like the loader, as often as the loader can be; loops may overlap, and each has a thread. It has the
    loader's ``len()`` and attributes (``dataset``, ``sampler``), and ``waiting`` and ``report()``. An error of the loader is raised
    by the loop, after the batches before it. A loop that ends early, however it does, ends its thread, once the loader has given
    the batch that it is at, and closes what it was reading from.

    Args:
        loader: any iterable: DataLoader, tf.data, grain, datasets, a generator. Its batches are tensors, arrays (what has
            ``__array__`` or ``__dlpack__``), or dicts, lists, tuples, dataclasses, mappings and pytrees of these, whose types stay.
            Objects with a method ``to`` are asked to move; numbers, text and whatever else come as they are.
        device: where tensors go: any device of PyTorch. Dtypes and strides stay.
        depth: how many batches may lie ready on the device, beside those that the loop itself holds.
        pad: sizes to pad to, by dim: ``{0: 32}`` makes the last batch as long as the others. A key narrows it to one tensor:
            ``{"ids": {1: 128}}``; keys are those of dicts and fields, or places in tuples (``"0"``, ``"inputs.ids"``).
        bucket: sizes to round up to, in the same form, so that a model is compiled for few of them: a function, such as this
            module's ``power_of_two`` or ``multiples_of(64)``, or the list of the sizes: ``{1: [128, 512]}``. What is named without
            a key holds for all tensors that have the dim; what is named by key goes before.
        fill: what to pad with: a number, or numbers by key, and 0 for the rest: ``{"labels": -100}``. `true_shape` and `mask` tell
            of a tensor of the batch how much of it is true.

    If the loader has ``state_dict`` and ``load_state_dict`` (or ``get_state`` and ``set_state``), the result has the former: the
    state is that after the batches which the loop has got, whatever was loaded ahead.

    The loader runs in another thread than the loop. What it draws from PyTorch's, NumPy's or Python's global generators mixes with
    what the loop draws, unless it has workers, as DataLoader has, or generators of its own.

    Raises:
        PrefetchArgumentError: an argument is not of these forms.
        BatchShapeError: by the loop: a batch has no such dim or key, or is larger than the size.
        PrefetchRestartError: by the second loop over a generator, or another source that is read once.
        PrefetchForkError: by an iterator in a forked child.
    """
    if not hasattr(type(loader), "__iter__") and not hasattr(type(loader), "__getitem__"):
        raise PrefetchArgumentError(
            expected="an iterable loader", got=type(loader).__name__, fix="Pass a DataLoader, a list of batches, or a generator.")
    if type(depth) is not int or depth < 1:
        raise PrefetchArgumentError(expected="a depth of at least 1", got=repr(depth), fix="Leave it at 2, or give a whole number.")
    state = state_of(loader)
    arguments = (loader, torch.device(device), depth, Padding(pad, bucket, fill))
    return Prefetched(*arguments) if state is None else ResumablePrefetched(*arguments, state)


class Prefetched:
    """What `prefetch` returns."""

    def __init__(self, source: Iterable[Any], device: torch.device, depth: int, pads: Padding, state: State | None = None) -> None:
        self._source, self._device, self._depth, self._pads, self._state = source, device, depth, pads, state
        self._newest: Progress | None = None
        self._producers: weakref.WeakSet[Producer] = weakref.WeakSet()  # their threads keep those that run
        self._is_used_up = False  # a source that can be read once has been

    def __iter__(self) -> PrefetchIterator:
        """Begin to load. The device is started here, by the thread that will use it."""
        self._await_stopped()
        device = torch.empty(0, device=self._device).device
        iterator = iter(self._source)
        owns_iterator = iterator is not self._source
        if not owns_iterator:
            self._begin_again()
        progress = Progress(state=self._state and self._state.read())
        producer = Producer(iterator, owns_iterator, Mover(device, self._pads), self._depth, self._state, progress.clock)
        self._producers.add(producer)
        self._newest = progress
        return PrefetchIterator(producer, progress, device.type)

    def _begin_again(self) -> None:
        """The source is an iterator itself: a second loop goes on where the first one was, or not at all."""
        if self._is_used_up:
            raise PrefetchRestartError(kind=type(self._source).__name__)
        self._is_used_up = True

    def _await_stopped(self) -> None:
        """Loops that ended early may still be loading, from a source that the next one is about to use."""
        for producer in list(self._producers):
            if producer.is_stopped:
                producer.join()

    def __len__(self) -> int:
        """Batches of one iteration.

        Raises:
            TypeError: the loader does not know.
        """
        return len(self._source)  # type: ignore[arg-type]

    @property
    def waiting(self) -> float:
        """The share of the newest iteration's time in which the loop waited for data, 0 to 1; the first batch left out."""
        return self.report().waiting

    def report(self) -> LoadingReport:
        """How the newest iteration has gone so far: ``print(batches.report())``."""
        return dataclasses.replace(self._newest.clock.report) if self._newest is not None else LoadingReport()

    def __getattr__(self, name: str) -> Any:
        """An attribute of the loader, such as ``dataset``.

        Raises:
            PrefetchStateError: the state of a loader that has none.
            AttributeError: the loader has no such attribute.
        """
        if name in ("state_dict", "load_state_dict"):
            raise PrefetchStateError(kind=type(self._source).__name__)
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._source, name)


class ResumablePrefetched(Prefetched):
    """What `prefetch` returns for a loader that can say where it stands."""

    _state: State

    def state_dict(self) -> Any:
        """Where the loader stands after the batches that the newest loop has got, not counting those that were loaded ahead.

        It is the loader's own state, which the loader itself takes as well.
        """
        return self._newest.state if self._newest is not None else self._state.read()

    def load_state_dict(self, state: Any) -> None:
        """Let the next loop begin there; running ones are ended."""
        for producer in list(self._producers):
            producer.close()
        self._state.write(state)
        self._newest, self._is_used_up = None, False

    def _begin_again(self) -> None:
        if self._is_used_up:
            self.load_state_dict(self.state_dict())
        super()._begin_again()


@dataclasses.dataclass
class Progress:
    """How far a loop has come: ``state`` is the source's after the last batch that was taken."""

    state: Any
    clock: Clock = dataclasses.field(default_factory=Clock)


class PrefetchIterator:
    """One loop over prefetched batches."""

    def __init__(self, producer: Producer, progress: Progress, device_type: str) -> None:
        self._producer = producer
        self._progress = progress
        self._device_type = device_type
        self._process = os.getpid()

    def __iter__(self) -> PrefetchIterator:
        return self

    def __next__(self) -> Any:
        if os.getpid() != self._process:
            raise PrefetchForkError()
        if _C.started():
            step_hooks.next_batch(_C)
        start_s = time.perf_counter()
        self._producer.want_another()  # before waiting, so that Ctrl-C in between leaves no request out
        item = self._producer.ready.get()
        if isinstance(item, End):
            self._finish(item)
        self._progress.clock.handed_over(start_s, self._device_type)
        self._progress.state = item.state
        return item.take()

    def _finish(self, end: End) -> None:
        self._producer.stop()
        self._producer.ready.put(End())  # for whoever asks again
        if end.state is not None:
            self._progress.state = end.state
        if end.error is None:
            raise StopIteration
        if isinstance(end.error, StopIteration):  # by a function of the user's; here it would end the loop
            raise RuntimeError("prefetch: a batch could not be prepared, because StopIteration was raised") from end.error
        error, end.error = end.error, None
        try:
            raise error
        finally:
            del error  # whose traceback holds this frame

    def close(self) -> None:
        """End the loop, and wait until its thread has ended and the batches that lay ready are gone."""
        self._producer.close()

    def __del__(self) -> None:
        self._producer.stop()


for _class in (Prefetched, ResumablePrefetched, PrefetchIterator):
    hide_from_dynamo(_class)
