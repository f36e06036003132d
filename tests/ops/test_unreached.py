"""Rules of operators that PyTorch splits before they reach the device: decompositions and compiled graphs use them."""

from __future__ import annotations

import pytest

from tests.ops.compare import differences
from tests.ops.direct import Direct, is_reached
from tests.ops.row import Make, Row
from tests.ops.tables import ROWS
from torchtpu.rules import RULES

UNREACHED = [row for row in ROWS if not is_reached(row) and not row.no_values]


@pytest.mark.parametrize("row", UNREACHED, ids=lambda row: row.key)
def test_rule_alone(row: Row) -> None:
    problems = []
    for place, sample in enumerate(row.samples(Make(row.dtypes[0]))):
        direct = Direct(row, sample)
        if direct.answer.kind == "node":
            expected, got = row.on_cpu(sample), direct.apply()
            problems += [f"sample {place}: {what}" for what in differences(row, sample, expected, got, strides=False)]
    assert not problems, "\n".join(problems)


def test_every_rule_has_a_row(golden) -> None:
    aten = {key for key in RULES if key.startswith("aten::")}  # compiled graphs bring an operator of their own
    without = sorted(aten - {row.key for row in ROWS})
    golden("rules_without_row", "".join(f"{key}\n" for key in without))


def test_no_operator_has_two_rows() -> None:
    keys = [row.key for row in ROWS]
    assert sorted(set(keys)) == sorted(keys)
