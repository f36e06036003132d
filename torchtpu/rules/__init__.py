"""Lowering rules: aten operators as JAX functions, one file a family. Never imports torch or the C++ core."""

from __future__ import annotations

import importlib
import pkgutil

from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import RULES, find, find_dynamic, find_higher_order, lower, lower_dynamic

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["RULES", "RuleContext", "find", "find_dynamic", "find_higher_order", "lower", "lower_dynamic"]
