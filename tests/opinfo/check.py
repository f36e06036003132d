"""One sample: the outcome, and what was wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from unittest import mock

import torch

from tests.opinfo.case import CPU, Case, Side, is_plain, tensors
from tests.opinfo.effects import Effects, Problem, differences, gradient_differences, run, same_values
from tests.opinfo.outcomes import worst
from tests.opinfo.referee import Referee
from torchtpu.errors import MissingRuleError, RuleError, UnsupportedDtypeError
from torchtpu.graph.cpu_only import is_stated

TPU = torch.device("tpu", 0)


@dataclass
class Verdict:
    """What came of one sample."""

    problems: list[Problem] = field(default_factory=list)
    outcome: str = "pass"
    random: bool = False
    gradients: bool = False
    refereed: bool = False

    @property
    def message(self) -> str:
        """What was said about the worst problem."""
        return next((p.message for p in self.problems if p.outcome == self.outcome), "")


def check(case: Case, device: torch.device = TPU, torch_compile: bool = False) -> Verdict:
    """Make the call on the CPU and on the device, there under ``torch.compile`` or not, and compare."""
    try:
        case = _with_out(case) if case.out else case
        want = run(case, Side(case, CPU))
    except Exception as error:
        return Verdict([Problem("cpu-refuses", told(error))], "cpu-refuses")
    _differentiate_on_cpu(case, want)
    random = case.fresh or _is_random(case, want)
    referee = Referee(case)
    problems = _collected(_on_device(_compiled(case) if torch_compile else case, want, random, device, referee, not torch_compile))
    if problems and not want.is_plain:
        problems = [Problem("layout", problem.message) for problem in problems]
    outcome = worst(problem.outcome for problem in problems) if problems else "pass"
    return Verdict(problems, outcome, random, bool(want.gradients), bool(referee.accepted))


def _compiled(case: Case) -> Case:
    """The same call, by a function that Dynamo can look into: entries of the database are objects."""
    function = case.function
    return replace(case, function=torch.compile(lambda *args, **kwargs: function(*args, **kwargs), backend="tpu", dynamic=False))


def told(error: BaseException) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _with_out(case: Case) -> Case:
    """The same call with out= arguments: as the results are, strided otherwise, or empty ones to be resized."""
    with torch.no_grad():
        results = run(case, Side(case, CPU)).result
    made = [_out_argument(t, case.out) for t in tensors(results)]
    return replace(case, kwargs=case.kwargs | {"out": made[0] if isinstance(results, torch.Tensor) else tuple(made)}, out="")


def _out_argument(result: torch.Tensor, form: str) -> torch.Tensor:
    if form == "empty" or not is_plain(result):
        return torch.empty(0, dtype=result.dtype)
    if form == "strided":
        return torch.ones(*result.shape, 2, dtype=result.dtype)[..., 0]
    return torch.ones_like(result)


def _differentiate_on_cpu(case: Case, want: Effects) -> None:
    """Of the highest order that the CPU has; an operator without gradients is compared without."""
    if not case.gradients:
        return
    for second_order in (True, False) if case.second_order else (False,):
        try:
            want.differentiate(second_order)
        except Exception:  # its formula is missing or wrong: PyTorch's own, so there is nothing to compare
            continue
        return


def _is_random(case: Case, want: Effects) -> bool:
    """Whether another seed gives other values on the CPU, also where the entry of a random operator sets its own seed."""
    seed = torch.manual_seed
    with mock.patch.object(torch, "manual_seed", lambda number: seed(int(number) + 1)):
        return not same_values(want, run(case, Side(case, CPU)))


def _on_device(
    case: Case, want: Effects, random: bool, device: torch.device, referee: Referee, count_versions: bool
) -> Iterator[Problem]:
    got = run(case, Side(case, device))
    if not count_versions:  # AOTAutograd copies new values into arguments, which some operators write without counting it
        got.versions = want.versions
    unfinished = None
    if want.gradients:
        try:
            got.differentiate(len(want.gradients) > len(want.side.leaves))
        except Exception as error:  # told after what is to be said about the results
            unfinished = error
    if device.type == TPU.type:
        torch.tpu.synchronize()  # a random result is not read below
    yield from differences(want, got, random, referee.accepts)
    if unfinished:
        raise unfinished
    if want.gradients:
        yield from gradient_differences(want, got, random, referee.accepts)


def _collected(problems: Iterator[Problem]) -> list[Problem]:
    """All problems up to the exception that the device may raise, which is the last of them."""
    found = []
    try:
        for problem in problems:
            found.append(problem)  # noqa: PERF402 - those before an exception count
    except Exception as error:
        found.append(Problem(_refusal(error), told(error)))
    return found


def _refusal(error: Exception) -> str:
    """The outcome of a call at which the device raised."""
    if isinstance(error, MissingRuleError) and is_stated(str(error.fields["op"])):
        return "no-fallback"
    return "unsupported" if isinstance(error, NotImplementedError | UnsupportedDtypeError) else "error"


def check_error(case: Case, mode: str, device: torch.device = TPU) -> Verdict:
    """Bad arguments: what the CPU refuses the device refuses too, at the call and with the same type of error."""
    wanted = _raised(case, CPU)
    if wanted is None:
        return Verdict([], "cpu-accepts")
    found, later = _raised(case, device), _raised_later(device)
    if found is None and mode != "debug" and _raised(case, torch.device("meta")) is None:
        with torch.tpu.set_eager_mode("debug"):  # it depends on values, which only debug mode waits for
            found = _raised(case, device)
    if found is None:
        when = f"raised only later: {told(later)}" if later else "nothing raised"
        problem = Problem("error-missed", f"{when}; the CPU raises {told(wanted)}")
    elif not isinstance(found, type(wanted)) or isinstance(found, RuleError) or "INTERNAL ASSERT" in str(found):
        problem = Problem("error-type", f"{told(found)}; the CPU raises {told(wanted)}")
    else:
        return Verdict([], "error-pass")
    if not all(is_plain(t) for t in tensors((case.args, case.kwargs))):
        problem = Problem("layout", problem.message)
    return Verdict([problem], problem.outcome)


def _raised(case: Case, device: torch.device) -> Exception | None:
    try:
        run(case, Side(case, device))
    except Exception as error:
        return error
    return None


def _raised_later(device: torch.device) -> Exception | None:
    """What a program raises that was recorded and not yet run."""
    if device.type != TPU.type:
        return None
    try:
        torch.tpu.synchronize()
    except Exception as error:
        return error
    return None
