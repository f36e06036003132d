"""The ``torch.compile`` backend named ``tpu``."""

from __future__ import annotations

from typing import Any

from torchtpu.errors import NotYetError


def tpu_backend(graph_module: Any, example_inputs: Any, **options: Any) -> Any:
    """Entry point ``torch_dynamo_backends``.

    Raises:
        NotYetError: always, for now.
    """
    raise NotYetError(
        what="torch.compile(backend='tpu')",
        fix="Run the model without torch.compile: the eager device already makes one XLA program of a training step.")
