"""The checker itself: it sees every kind of difference, and only those."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.opinfo import known, report, workers
from tests.opinfo.case import CPU, Case, Side
from tests.opinfo.check import check, check_error
from tests.opinfo.database import Task, entries
from tests.opinfo.effects import Effects, differences, gradient_differences, run
from tests.opinfo.options import Checks, parse
from tests.opinfo.outcomes import Record
from tests.opinfo.referee import Referee
from tests.opinfo.samples import cases
from torchtpu.errors import MissingRuleError

X = torch.arange(6.0).reshape(2, 3)


def _effects(function: Callable[..., Any], *args: Any, gradients: bool = False) -> Effects:
    case = Case("sample", "fn", function, args, gradients=gradients)
    made = run(case, Side(case, CPU))
    if gradients:
        made.differentiate(False)
    return made


def _outcomes(right: Callable[..., Any], wrong: Callable[..., Any], *args: Any) -> set[str]:
    return {problem.outcome for problem in differences(_effects(right, *args), _effects(wrong, *args))}


@pytest.mark.parametrize(("right", "wrong"), [
    (lambda x: x + 1, lambda x: x + 1.001),
    (lambda x: x / 0, lambda x: x * 0),
    (lambda x: x + 1, lambda x: (x + 1).double()),
    (lambda x: x + 1, lambda x: (x + 1)[None]),
    (lambda x: x + 1, lambda x: [x + 1]),
    (lambda x: x.max(0), lambda x: tuple(x.max(0))),
    (lambda x: x + 1, lambda x: 1.0),
    (lambda x: 1, lambda x: 1.0),
    (lambda x: x + 1, lambda x: (x + 1).requires_grad_()),
    (lambda x: torch.complex(x, x).conj(), lambda x: torch.complex(x, -x)),
    (lambda x: x + 1, lambda x: (x + 1).to("meta")),
])
def test_wrong_results_are_seen(right: Callable[..., Any], wrong: Callable[..., Any]) -> None:
    """Values, dtype, shape, structure, Python numbers, requires_grad, conjugation, device."""
    assert _outcomes(right, right, X) == set()
    try:
        assert "fail" in _outcomes(right, wrong, X)
    except NotImplementedError as error:  # reading a meta tensor: told by the runner as an error
        assert "meta" in str(error)


def test_wrong_strides_are_seen() -> None:
    """Of dense results, in dims that have more than one place."""
    assert _outcomes(lambda x: (x + 1).t(), lambda x: (x + 1).t().contiguous(), X) == {"strides"}
    assert _outcomes(lambda x: (x + 1)[:1], lambda x: (x + 1)[:1].t().contiguous().t(), X) == set()
    assert _outcomes(lambda x: torch.empty(2, 3).t(), lambda x: torch.empty(3, 2), X) >= {"strides"}


def test_wrong_aliasing_is_seen() -> None:
    """A copy for a view, a view for the tensor itself, and results that should share."""
    assert _outcomes(lambda x: x.t(), lambda x: x.clone().t(), X) == {"aliasing"}
    assert _outcomes(lambda x: x, lambda x: x.view(2, 3), X) == {"aliasing"}
    assert _outcomes(lambda x: x.chunk(2), lambda x: tuple(c.clone() for c in x.chunk(2)), X) == {"aliasing"}


def test_wrong_writes_are_seen() -> None:
    """One write too many, one too few, and another value."""
    assert _outcomes(lambda x: x.add_(1), lambda x: x.add_(0.5).add_(0.5), X) == {"aliasing"}
    assert _outcomes(lambda x: x.add_(1) and None, lambda x: None, X[0, :1]) == {"aliasing", "fail"}
    assert _outcomes(lambda x: x.add_(1) * 0, lambda x: x.add_(2) * 0, X) == {"fail"}
    assert _outcomes(lambda x: x[:, 0].zero_() and None, lambda x: x[:, 1].zero_() and None, X[:1]) == {"fail"}


def test_wrong_gradients_are_seen() -> None:
    """Other values, and none at all."""
    x = X.clone().requires_grad_()

    def told(right: Callable[..., Any], wrong: Callable[..., Any]) -> list[str]:
        pair = (_effects(right, x, gradients=True), _effects(wrong, x, gradients=True))
        return [problem.outcome for problem in gradient_differences(*pair)]

    assert told(lambda x: x * 2, lambda x: x + x) == []
    assert told(lambda x: x * 2, lambda x: x + x.detach()) == ["fail"]
    assert told(lambda x: x * 2, lambda x: (x * 2).detach()) == ["fail"]


def test_second_order() -> None:
    """The gradients of the gradients come after those of first order."""
    case = Case("sample", "fn", lambda x: x**3, (X.double().requires_grad_(),), gradients=True, second_order=True)
    effects = run(case, Side(case, CPU))
    effects.differentiate(True)
    assert len(effects.gradients) == 3  # of the argument; of the argument and of the weights


def test_random_results_are_known() -> None:
    """Also where the function sets a seed of its own; their metadata is compared all the same."""

    def seeded(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(7)
        return torch.rand_like(x)

    for function, random in ((torch.rand_like, True), (seeded, True), (torch.sin, False)):
        verdict = check(Case("sample", "fn", function, (X,)), CPU)
        assert (verdict.outcome, verdict.random) == ("pass", random)


@pytest.mark.parametrize("form", ["same", "strided", "empty"])
def test_out_arguments(form: str) -> None:
    """They are made for the results of the call itself; what returns something else is seen."""
    assert check(Case("sample", "out", torch.add, (X, X), out=form), CPU).outcome == "pass"
    assert "aliasing" in _outcomes(
        lambda x, out: torch.add(x, x, out=out), lambda x, out: torch.add(x, x, out=out).clone(), X, torch.empty(2, 3))


def test_in_place_gradients() -> None:
    """A leaf that has a gradient cannot be written, so a clone of it is."""
    verdict = check(Case("sample", "inplace", torch.Tensor.sin_, (X.clone().requires_grad_(),), gradients=True), CPU)
    assert (verdict.outcome, verdict.gradients) == ("pass", True)


def test_referee() -> None:
    """Where the CPU is wrong itself, being as near to float64 is enough, and only then."""
    case = Case("sample", "fn", lambda x: x + 1e6 - 1e6, (X / 7,))
    want = run(case, Side(case, CPU)).result
    referee = Referee(case)
    assert referee.accepts("result", 0, want, X / 7)
    assert not referee.accepts("result", 0, want, X / 7 + 1)
    assert not referee.accepts("result", 0, want, X / 7 * float("nan"))
    assert referee.accepted == 1


def test_referee_of_modules() -> None:
    """Beside a lucky result of the CPU's, its worst among modules with the next parameters is the measure; a module's alone."""
    torch.manual_seed(0)
    layers = [part for _ in range(4) for part in (torch.nn.Linear(64, 64), torch.nn.Tanh())]
    module = torch.nn.Sequential(*layers, torch.nn.Linear(64, 1)).bfloat16()
    x = torch.randn(64).bfloat16()
    exact = copy.deepcopy(module).double()(x.double()).detach()
    lucky, usual, wrong = (value.bfloat16() for value in (exact, exact + 7e-4, exact + 1e-2))
    of_module = Referee(Case("sample", "fn", lambda module, x: module(x), (module, x)))
    assert of_module.accepts("result", 0, lucky, usual)
    assert not of_module.accepts("result", 0, lucky, wrong)
    of_function = Referee(Case("sample", "fn", lambda x: module.to(x.dtype)(x), (x,)))
    assert not of_function.accepts("result", 0, lucky, usual)


def test_layouts() -> None:
    """What is not strided is no failure of a device that does not handle it."""
    case = Case("sample", "fn", torch.Tensor.to_sparse, (X,))
    assert check(case, CPU).outcome == "pass"
    assert check(case, torch.device("meta")).outcome == "layout"


def test_equal_values_have_no_order() -> None:
    """Of places in a sorted order, the values there are compared."""
    entry = entries("ops")["topk"]
    case = next(cases("ops", entry, torch.int64, Checks()))
    values, places = torch.topk(*case.args)
    _, again = case.process((values, places))
    assert again.equal(values)


def test_a_refusal_of_the_cpu() -> None:
    """It is no failure of the device."""
    assert check(Case("sample", "fn", torch.mm, (X, X)), CPU).outcome == "cpu-refuses"


@pytest.mark.parametrize(("op", "outcome"), [
    ("aten::linalg_eig", "no-fallback"), ("aten::linalg_eigvals.out", "no-fallback"), ("aten::mm", "unsupported")])
def test_only_stated_operators_may_need_the_cpu(op: str, outcome: str) -> None:
    """With TORCHTPU_FALLBACK=error."""
    def function(x: torch.Tensor) -> torch.Tensor:
        if x.device.type != "cpu":
            raise MissingRuleError(op=op)
        return x

    verdict = check(Case("sample", "fn", function, (X,)), torch.device("meta"))
    assert [problem.outcome for problem in verdict.problems] == [outcome]


@pytest.mark.parametrize(("second", "outcome"), [(IndexError, "error-pass"), (ValueError, "error-type"), (None, "error-missed")])
def test_errors(second: type[Exception] | None, outcome: str) -> None:
    """The first call stands for the CPU's, those after it for the device's."""
    kinds = [LookupError, *[second] * 3]

    def function(x: torch.Tensor) -> None:
        if kind := kinds.pop(0):
            raise kind("no")

    assert check_error(Case("sample", "error", function, (X,)), "strict", CPU).outcome == outcome


def test_a_fault_of_ours_is_no_refusal() -> None:
    """Even if its type is what the CPU raises."""
    said = ["bad index", *["INTERNAL ASSERT FAILED"] * 3]

    def function(x: torch.Tensor) -> None:
        raise RuntimeError(said.pop(0))

    assert check_error(Case("sample", "error", function, (X,)), "strict", CPU).outcome == "error-type"


def test_copies_keep_what_matters() -> None:
    """Strides, offsets, shared memory, tensors that are given twice, conjugation and requires_grad."""
    z = torch.complex(X, X)
    case = Case("sample", "fn", torch.add, (X[:, 1:], X, X, z.conj(), X.clone().requires_grad_()), gradients=True)
    part, whole, twice, conjugate, leaf = Side(case, CPU).args
    assert whole is twice and whole is not X
    assert part.untyped_storage()._cdata == whole.untyped_storage()._cdata != X.untyped_storage()._cdata
    assert (part.stride(), part.storage_offset()) == ((3, 1), 1)
    assert conjugate.is_conj() and torch.equal(conjugate, z.conj())
    assert leaf.requires_grad and leaf.is_leaf


def _record(outcome: str, options: str = "o") -> Record:
    record = Record(options)
    record.add("fn", outcome, "why")
    return record


def test_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes back from disk; known failures and stale lines are told apart; changes are listed."""
    monkeypatch.setattr(known, "KNOWN", {("a", "*", "fn"): "reason", ("b", "float32", "*"): "reason"})
    monkeypatch.setattr(report, "KNOWN", known.KNOWN)
    first = report.Report(tmp_path / "new" / "report.json")
    for entry, outcome in (("a", "fail"), ("b", "pass"), ("c", "strides")):
        first.add(Task("ops", entry, "float32"), _record(outcome))
    first.save()
    again = report.Report.load(tmp_path / "new" / "report.json")
    assert again.records == first.records
    assert [again.status(task) for task in again.ordered()] == ["known", "pass", "strides"]
    assert [task.entry for task in again.failed()] == ["c"]
    assert again.stale() == [("b", "float32", "*")]
    again.add(Task("ops", "c", "float32"), _record("pass", "other"))
    assert next(report.changes(first, again)) == "ops c float32: strides -> pass why"
    assert again.without("o") == 1 and len(again.records) == 2
    assert any("strides: why" in line for line in report.failures(first))


def _serve_badly(pipe: Any, checks: Checks, log: str) -> None:
    pipe.send(None)
    while True:
        task = pipe.recv()
        marker = Path(checks.mode) / task.entry
        if task.entry == "hangs":
            pipe.poll(60)
        elif task.entry == "dies" or (task.entry == "dies-once" and not marker.exists()):
            marker.touch()
            break
        pipe.send(_record("pass"))


def test_workers_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When they die or hang; what died is tried once more."""
    monkeypatch.setattr(workers, "serve", _serve_badly)
    tasks = [Task("ops", entry, "float32") for entry in ("works", "dies", "hangs", "dies-once", "works-too")]
    pool = workers.Pool(Checks(mode=str(tmp_path)), jobs=2, timeout_s=8)
    came = {task.entry: (record.status, record.retried) for task, record in pool.run(tasks)}
    assert came == {
        "works": ("pass", False), "dies": ("crash", True), "hangs": ("timeout", False), "dies-once": ("pass", True),
        "works-too": ("pass", False)}


def test_options(capsys: pytest.CaptureFixture[str]) -> None:
    """Records of other checks are told apart by one line; what is wrong is said."""
    assert parse([]).checks.key == "fn samples=all strict fallback=warn"
    assert parse(["--gradgrad", "--variants", "fn,out", "--max-samples", "3", "--mode", "fused"]).checks.key == (
        "fn,out grad gradgrad samples=3 fused fallback=warn")
    for wrong in (["--variants", "method"], ["--dtypes", "flot32"], ["--resume"]):
        with pytest.raises(SystemExit):
            parse(wrong)
    assert "--resume needs --json" in capsys.readouterr().err
