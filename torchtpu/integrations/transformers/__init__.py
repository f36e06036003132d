"""Hugging Face transformers: ``generate()`` with few shapes.

What grows in the loop of ``generate()``, token ids and masks, is kept on the host; the model sees a prompt padded to a power of
two and a cache whose capacity is one (``cache.py``). So calls of any length need a number of programs that grows with the logarithm
of the length, and then none.
"""

from __future__ import annotations

from types import ModuleType


def apply(module: ModuleType) -> None:
    """Change ``GenerationMixin.generate`` for models on the device."""
    from torchtpu.integrations.transformers import generate

    generate.apply(module.GenerationMixin)
