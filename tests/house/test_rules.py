"""The form of the rules: the schema in the first docstring line, names that follow their keys, one rule a key."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
import torch._dynamo._trace_wrapped_higher_order_op  # registers flex_lib

from torchtpu.inspect.where import load_all_rules
from torchtpu.rules.registry import RULES, Rule, lower

load_all_rules()
USES = Counter(id(rule.function.__code__) for rule in RULES.values() if hasattr(rule.function, "__code__"))


def _schema(key: str) -> str:
    namespace, _, rest = key.partition("::")
    packet, _, overload = rest.partition(".")
    return str(getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")._schema)


def _own_function(rule: Rule) -> bool:
    """A function written for one key; tables and shared functions have docstrings of their own kind."""
    code = getattr(rule.function, "__code__", None)
    return code is not None and USES[id(code)] == 1 and "<locals>" not in rule.function.__qualname__


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_key_is_a_functional_overload_of_this_torch(rule: Rule) -> None:
    namespace, _, rest = rule.key.partition("::")
    packet, _, overload = rest.partition(".")
    op = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
    assert not op._schema.is_mutable, "a rule is keyed by the functional overload; in-place and out= forms are derived"


@pytest.mark.parametrize("rule", [r for r in RULES.values() if _own_function(r)], ids=lambda rule: rule.key)
def test_docstring_begins_with_the_schema(rule: Rule) -> None:
    first = (rule.function.__doc__ or "").strip().partition("\n")[0].strip()
    assert first == _schema(rule.key), f"first docstring line of {rule.where}"


@pytest.mark.parametrize("rule", [r for r in RULES.values() if _own_function(r)], ids=lambda rule: rule.key)
def test_name_follows_the_key(rule: Rule) -> None:
    expected = rule.key.replace("::", "_").replace(".", "_")
    assert rule.function.__name__ == expected, rule.where


def test_second_registration_of_a_key_names_both_places() -> None:
    key, rule = next(iter(RULES.items()))
    with pytest.raises(ValueError, match="registered twice") as raised:
        lower(key)(lambda ctx: None)
    assert rule.where in str(raised.value) and __file__ in str(raised.value)
