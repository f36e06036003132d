"""No operator is further from the exact result than twice the CPU's error or four units in the last place, but for those listed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.accuracy.deviations import unlisted
from tests.accuracy.measure import DTYPES, FAST, measure
from tests.accuracy.subjects import SUBJECTS, Subject
from tests.accuracy.ulp import errors, wide

pytestmark = pytest.mark.filterwarnings("ignore")  # the CPU's, of NumPy and of complex numbers made real
SLOW = tuple(dtype for dtype in DTYPES if dtype not in FAST)


def _judge(subject: Subject, dtypes: tuple[torch.dtype, ...]) -> None:
    problems = [problem for verdict in measure([subject], dtypes) for problem in unlisted(verdict)]
    assert not problems, "\n".join([*problems, f"python -m tests.accuracy --only '^{subject.name}$'"])


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_accuracy(subject: Subject) -> None:
    _judge(subject, FAST)


@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_accuracy_of_other_dtypes(subject: Subject) -> None:
    _judge(subject, SLOW)


def test_names_are_unique() -> None:
    names = [subject.name for subject in SUBJECTS]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("result, exact, ulp", [
    (1.0, 1.0, 0.0), (1.0 + 2**-23, 1.0, 1.0), (1.0 - 2**-24, 1.0, 0.5), (float("inf"), 2.0**128 - 2.0**104, 1.0),
    (float("nan"), 1.0, float("inf")), (1.0, float("nan"), float("inf")), (float("nan"), float("nan"), 0.0),
    (-0.0, 0.0, float("inf")), (3e38, float("inf"), float("inf")), (float("-inf"), float("inf"), float("inf")),
    (0.0, 1e-39, 0.0), (0.0, -1e-39, 0.0), (1e-30, 1e-39, float("nan")),
])
def test_errors(result: float, exact: float, ulp: float) -> None:
    found = errors(wide(torch.tensor([result])), np.array([exact], np.longdouble), torch.float32)[0]
    assert found == pytest.approx(ulp, rel=1e-3) or (np.isnan(ulp) and found > 1e3)
