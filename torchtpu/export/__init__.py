"""Programs of ``torch.export`` as files that JAX runs without PyTorch, and what a named TPU would make of them."""

from __future__ import annotations

from torchtpu.export.artifact import save
from torchtpu.export.named_topology import compile_for
from torchtpu.export.standalone import Program, load

__all__ = ["Program", "compile_for", "load", "save"]
