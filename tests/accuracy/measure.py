"""Measures many operators: all calls of a dtype are recorded before the first result is read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import torch

from tests.accuracy.referee import Verdict, judge, record
from tests.accuracy.subjects import SUBJECTS, Subject

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.complex64)
FAST = (torch.float32, torch.bfloat16)


def measure(subjects: Sequence[Subject], dtypes: Sequence[torch.dtype]) -> Iterator[Verdict]:
    """The verdicts of all operators in the dtypes that they have."""
    for subject in subjects:
        pending = [record(subject, dtype) for dtype in dtypes if subject.supports(dtype)]
        for calls in pending:
            yield judge(calls)


def chosen(only: str) -> list[Subject]:
    """The operators whose name holds what the pattern says."""
    return [subject for subject in SUBJECTS if re.search(only, subject.name)]
