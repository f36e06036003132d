"""Moving bytes between the host and the device."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from torchtpu.errors import ExecutionError

_background = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torchtpu-upload")


class Token:
    """What tells the end of an upload, without holding on to the array."""

    def __init__(self) -> None:
        self._read = threading.Event()

    def set(self, _: object) -> None:
        """The source has been read."""
        self._read.set()

    def is_ready(self) -> bool:
        """As for an array: whether it is done."""
        return self._read.is_set()

    def block_until_ready(self) -> None:
        """As for an array: wait until it is done."""
        self._read.wait()


class Upload:
    """An array whose copy from page-locked host memory may still be on its way."""

    def __init__(self, source: np.ndarray, device: jax.Device, owner: Any) -> None:
        self.token = Token()
        self._future: Future[jax.Array] = _background.submit(_put_copy, source, device, owner)
        self._future.add_done_callback(self.token.set)

    def result(self) -> jax.Array:
        """The array; waits until the source has been read."""
        return self._future.result()

    def done(self) -> bool:
        """Whether the source has been read."""
        return self._future.done()

    def is_deleted(self) -> bool:
        """As for an array: whether it was donated to a program."""
        return self.done() and self.result().is_deleted()


def settle(array: Any) -> jax.Array:
    """The array itself, whether or not its upload has ended."""
    return array.result() if type(array) is Upload else array


def upload(view: memoryview, dtype: np.dtype, shape: tuple[int, ...], device: jax.Device, owner: Any) -> Any:
    """A device array with a copy of host memory.

    With an ``owner`` (the tensor that holds the memory), the copy is made in the background and the caller must leave the memory
    alone until it is done; without one, it has been made when this returns.
    """
    source = np.frombuffer(view, np.uint8).view(dtype).reshape(shape) if view.nbytes else np.zeros(shape, dtype)
    return _put_copy(source, device, None) if owner is None else Upload(source, device, owner)


def _put_copy(source: np.ndarray, device: jax.Device, owner: Any) -> jax.Array:
    del owner  # kept alive by the caller's frame until the copy is made
    owned = source.copy()  # on the CPU, JAX may use the memory it is given as its own
    with jax.enable_x64(True):
        return jax.device_put(owned, device)


def download(array: Any, view: memoryview) -> None:
    """Wait for the array and copy its bytes, in row-major order, into ``view``.

    Raises:
        ExecutionError: the program that computes the array failed.
    """
    try:
        values = np.asarray(settle(array))
    except jax.errors.JaxRuntimeError as error:
        raise ExecutionError(device="the device", why=str(error).strip().split("\n")[0]) from error
    np.frombuffer(view, np.uint8)[:] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def to_device(array: Any, device: jax.Device) -> jax.Array:
    """The array on another device."""
    with jax.enable_x64(True):
        return jax.device_put(settle(array), device)
