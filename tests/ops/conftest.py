"""Options and reports of the operator tests."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--op aten::addmm``: only the tests of one operator, all overloads of it if none is named."""
    parser.addoption("--op", default="", help="only the tests of this operator, such as aten::addmm or add.Tensor")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the operator that was asked for."""
    wanted = config.getoption("--op", default="")
    if not wanted:
        return
    wanted = wanted if "::" in wanted else f"aten::{wanted}"
    kept = [item for item in items if _key(item) == wanted or _key(item).startswith(wanted + ".")]
    if not kept:
        raise pytest.UsageError(f"no row of tests/ops/table is about {wanted}; `make where OP={wanted}` says how it is lowered")
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def _key(item: pytest.Item) -> str:
    parameters = getattr(item, "callspec", None)
    row = parameters.params.get("row") if parameters else None
    return getattr(row, "key", "")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """A failing test of an operator says how to run it again."""
    report = yield
    if report.failed and _key(item):
        report.sections.append(("run it again", f"make test-op OP={_key(item)}"))
    return report
