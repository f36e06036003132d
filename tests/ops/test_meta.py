"""What the recorder is told of every row's results is what its rule returns, traced without a device."""

from __future__ import annotations

import pytest

from tests.ops.direct import Direct
from tests.ops.row import Make, Row
from tests.ops.tables import ROWS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_meta(row: Row) -> None:
    for dtype in row.dtypes:
        for place, sample in enumerate(row.samples(Make(dtype))):
            direct = Direct(row, sample)
            kind = direct.answer.kind
            assert kind in ("node", "dynamic"), f"{dtype}, sample {place}: {kind}"
            if kind == "node":
                assert direct.traced() == direct.recorded(), f"{dtype}, sample {place}"
