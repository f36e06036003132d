"""Values, dtypes and strides of every row: on the device as on the CPU."""

from __future__ import annotations

import pytest
import torch

from tests.ops.compare import differences, to_device
from tests.ops.row import Row, Sample
from tests.ops.tables import ROWS
from tests.ops.variants import forms


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_values(row: Row) -> None:
    # Everything is recorded before anything is read: one program a row.
    pending = []
    for dtype in row.dtypes:
        for form in forms(row, dtype):
            moved = Sample(*to_device((form.sample.args, form.sample.kwargs)))
            pending.append((dtype, form, form.run(moved)))
    problems: dict[torch.dtype, list[str]] = {dtype: [] for dtype in row.dtypes}
    for dtype, form, got in pending:
        found = differences(row, form.sample, form.expected, got, strides=form.fresh)
        problems[dtype] += [f"{dtype}, {form.name}: {what}" for what in found]
        if row.check is not None and form.fresh:
            row.check(got)
    unexpected = [
        problem for dtype, found in problems.items() if not row.expected_failure(dtype, "values") for problem in found]
    for dtype, found in problems.items():
        reason = row.expected_failure(dtype, "values")
        if reason and not found:
            unexpected.append(f"{dtype} passes now, though it was expected to fail: {reason}")
    assert not unexpected, "\n".join(unexpected)
