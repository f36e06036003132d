"""Bad arguments: the device raises at once what the CPU raises."""

from __future__ import annotations

import pytest

from tests.ops.compare import to_device
from tests.ops.row import Make, Row, Sample
from tests.ops.tables import ROWS

REFUSING = [row for row in ROWS if row.errors is not None]


@pytest.mark.parametrize("row", REFUSING, ids=lambda row: row.key)
def test_errors(row: Row) -> None:
    for sample in row.errors(Make(row.dtypes[0])):
        with pytest.raises((RuntimeError, IndexError, ValueError, TypeError)) as on_cpu:
            row.on_cpu(sample)
        moved = Sample(*to_device((sample.args, sample.kwargs)))
        with pytest.raises(on_cpu.type):
            row.op(*moved.args, **moved.kwargs)
