"""Debug mode: wait after every operator, and look for NaN if asked."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from torchtpu import flags
from torchtpu.errors import ExecutionError, NanError
from torchtpu.runtime import in_flight
from torchtpu.runtime.user_code import user_line


def check(op: str, device: int) -> None:
    """Wait for the operator just run.

    Raises:
        ExecutionError: it failed; the message carries the user's line.
        NanError: a result holds NaN or infinity and ``TORCHTPU_CHECK_NAN`` is set.
    """
    outputs = in_flight.arrays_of(device)
    try:
        jax.block_until_ready(outputs)
    except jax.errors.JaxRuntimeError as error:
        why = f"{op} at {user_line()}: {str(error).strip().splitlines()[0]}"
        raise ExecutionError(device=f"tpu:{device}", why=why) from error
    if flags.get("TORCHTPU_CHECK_NAN"):
        for array in outputs:
            if jnp.issubdtype(array.dtype, jnp.inexact) and not bool(jnp.isfinite(array).all()):
                raise NanError(op=op, where=user_line())
