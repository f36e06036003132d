"""`make where`: rules, decompositions, views and fallbacks, and names that do not exist."""

from __future__ import annotations

import pytest

from torchtpu.inspect import where


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aten::addmm", "torchtpu/rules/matmul.py:"),
        ("aten.addmm.default", "torchtpu/rules/matmul.py:"),
        ("add_.Tensor", "derived from aten::add.Tensor"),
        ("aten::polygamma_", "no functional form"),
        ("transpose", "view "),
        ("matmul", "composite "),
        ("aten::linalg_eig", "CPU fallback "),
    ],
)
def test_says_where_an_operator_is_lowered(name: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert where.main([name]) == 0
    assert expected in capsys.readouterr().out


def test_a_name_without_overload_means_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert where.main(["aten::add"]) == 0
    named = {line.partition("(")[0] for line in capsys.readouterr().out.splitlines()}
    assert {"aten::add.Tensor", "aten::add.Scalar"} <= named


def test_unknown_operator_offers_close_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert where.main(["aten::adm"]) == 1
    assert "Did you mean" in capsys.readouterr().err
