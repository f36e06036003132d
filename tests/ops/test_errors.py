"""Bad arguments: what the CPU refuses, the device refuses too, and at once."""

from __future__ import annotations

import pytest

from tests.ops.compare import to_device
from tests.ops.row import Make, Row, Sample
from tests.ops.tables import ROWS
from torchtpu.errors import RuleError

REFUSALS = (RuntimeError, IndexError, ValueError, TypeError)
REFUSING = [row for row in ROWS if row.errors is not None]


@pytest.mark.parametrize("row", REFUSING, ids=lambda row: row.key)
def test_errors(row: Row) -> None:
    for sample in row.errors(Make(row.dtypes[0])):
        with pytest.raises(REFUSALS):
            row.on_cpu(sample)
        moved = Sample(*to_device((sample.args, sample.kwargs)))
        with pytest.raises(REFUSALS) as refusal:
            row.op(*moved.args, **moved.kwargs)
        assert not isinstance(refusal.value, RuleError), "refused, but as a fault of ours"
