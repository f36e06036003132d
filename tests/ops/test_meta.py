"""What was recorded of every row's results is what its rule returns, traced without a device."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
import torch

from tests.ops.row import Make, Row, Sample
from tests.ops.tables import ROWS
from torchtpu import dtypes
from torchtpu.graph.resolve import Answer, resolve


def answer_of(row: Row, sample: Sample) -> tuple[Answer, list[tuple]]:
    """The signature of a call, asked for as the recorder does: every tensor has a buffer of its own."""
    buffers: list[tuple] = []

    def send(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            buffers.append((value.dtype, (value.untyped_storage().nbytes() // value.itemsize,), value.untyped_storage().nbytes()))
            return (
                "tensor", len(buffers) - 1, value.dtype, tuple(value.shape), tuple(value.stride()), value.storage_offset(),
                value.is_conj(), value.is_neg())
        if isinstance(value, list | tuple):
            return [send(item) for item in value]
        if isinstance(value, torch.dtype):
            return NUMBER_OF[value]
        if isinstance(value, torch.memory_format):
            return {torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2}[value]
        return None if isinstance(value, torch.device) else value

    schema = row.op._schema.arguments
    given = {a.name: value for a, value in zip(schema, sample.args, strict=False)} | sample.kwargs
    sent = []
    for argument in schema:
        value = given.get(argument.name, argument.default_value)
        if str(argument.type) == "Tensor" and isinstance(value, int | float):
            dtype = torch.float64 if isinstance(value, float) else torch.bool if isinstance(value, bool) else torch.int64
            sent.append(("host", dtype, True))
            continue
        if argument.N and isinstance(value, int) and not isinstance(value, bool):  # one number stands for all
            value = [value] * argument.N
        sent.append(send(value))
    return resolve(row.key, sent, buffers), buffers


NUMBER_OF = {dtype: number for number, dtype in dtypes.FROM_NUMBER.items()}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_meta(row: Row) -> None:
    with jax.enable_x64(True):
        for dtype in row.dtypes:
            for place, sample in enumerate(row.samples(Make(dtype))):
                answer, buffers = answer_of(row, sample)
                if answer.kind in ("dynamic", "nothing"):
                    continue
                assert answer.kind == "node", f"{dtype}, sample {place}: {answer.kind}"
                arrays = [jax.ShapeDtypeStruct(shape, dtypes.to_numpy(d)) for d, shape, _ in buffers]
                numbers = [jax.ShapeDtypeStruct((), d) for d in answer.lowering.slot_dtypes]
                words = jax.ShapeDtypeStruct((4,), np.uint32) if answer.random else None
                traced = jax.eval_shape(answer.lowering, arrays, numbers, words)
                recorded = [(tuple(o[3]), dtypes.to_numpy(o[0])) for o in answer.outputs]
                assert [(r.shape, r.dtype) for r in traced] == recorded, f"{dtype}, sample {place}"
