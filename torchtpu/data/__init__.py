"""Data on its way to the device: ``prefetch`` loads, pads and moves batches while the program works on the one before."""

from __future__ import annotations

from torchtpu.compile.shapes import listed, multiples_of, power_of_two
from torchtpu.data.padding import mask, true_shape
from torchtpu.data.prefetching import Prefetched, PrefetchIterator, prefetch
from torchtpu.data.report import LoadingReport

__all__ = [
    "LoadingReport", "PrefetchIterator", "Prefetched", "listed", "mask", "multiples_of", "power_of_two", "prefetch", "true_shape",
]
