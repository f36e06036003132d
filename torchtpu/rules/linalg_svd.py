"""Singular values, and least squares by them. Batches are leading dimensions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from torchtpu.rules._numbers import narrow_loops
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower


def _adjoint(matrix: Array) -> Array:
    return jnp.conj(jnp.swapaxes(matrix, -1, -2))


def polar_svd(a: Array, full: bool) -> tuple[Array, Array, Array]:
    """Of one matrix that is not wide: the polar decomposition, then the eigenvectors of its symmetric factor.

    Source: Nakatsukasa and Higham, Stable and Efficient Spectral Divide and Conquer Algorithms (2013). JAX's own does the same,
    but what it adds for matrices that are not finite makes the compiler of a TPU abort under 64-bit types.
    """
    columns = a.shape[1]
    q, r = jnp.linalg.qr(a, mode="complete" if full else "reduced")
    rotation, stretch, _, _ = lax.linalg.qdwh(r[:columns], is_hermitian=False)
    v, s = lax.linalg.eigh(stretch, symmetrize_input=False)
    s, v = jnp.maximum(s, 0)[::-1], v[:, ::-1]
    # Of matrices without full rank the rotation is none: made orthogonal again (section 5.5).
    u, triangle = jnp.linalg.qr(rotation @ v)
    u = u * jnp.where(jnp.real(jnp.diagonal(triangle)) < 0, -1, 1).astype(u.dtype)
    return jnp.concatenate([q[:, :columns] @ u, q[:, columns:]], 1), s, _adjoint(v)


def svd(a: Array, full: bool = False) -> tuple[Array, Array, Array]:
    """U, singular values from the largest on, and the adjoint of V; U and V square if ``full``."""

    def wide_or_tall(a: Array) -> tuple[Array, Array, Array]:
        if a.shape[-2] >= a.shape[-1]:
            return jnp.vectorize(lambda a: polar_svd(a, full), signature="(m,n)->(m,k),(l),(n,n)")(a)
        u, s, vh = wide_or_tall(_adjoint(a))
        return _adjoint(vh), s, _adjoint(u)

    def by_library(a: Array) -> tuple[Array, Array, Array]:
        u, s, vh = lax.linalg.svd(a, full_matrices=full)
        return u, s, vh

    with narrow_loops(a.dtype), jax.default_matmul_precision("highest"):
        return lax.platform_dependent(a, tpu=wide_or_tall, default=by_library)


@lower("aten::_linalg_svd")
def aten__linalg_svd(
    ctx: RuleContext, A: Array, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Array, Array, Array]:
    """aten::_linalg_svd(Tensor A, bool full_matrices=False, bool compute_uv=True, *, str? driver=None) -> (Tensor U, Tensor S, Tensor Vh)"""  # noqa: E501
    if A.size == 0:
        return tuple(_unit(o) for o in ctx.outputs)  # pyright: ignore[reportReturnType]
    u, s, vh = svd(A, full_matrices)
    none = jnp.zeros(0, A.dtype)
    return (u, s, vh) if compute_uv else (none, s, none)


def _unit(wanted: jax.ShapeDtypeStruct) -> Array:
    if 0 in wanted.shape:
        return jnp.zeros(wanted.shape, wanted.dtype)
    return jnp.broadcast_to(jnp.eye(*wanted.shape[-2:], dtype=wanted.dtype), wanted.shape)


@lower("aten::linalg_lstsq")
def aten_linalg_lstsq(
    ctx: RuleContext, self: Array, b: Array, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Array, Array, Array, Array]:
    """aten::linalg_lstsq(Tensor self, Tensor b, float? rcond=None, *, str? driver=None) -> (Tensor solution, Tensor residuals, Tensor rank, Tensor singular_values)

    The shortest solution, whatever the driver.

    Differs: residuals do not depend on the rank, which is not known before the shapes are.
    """  # noqa: E501
    if 0 in self.shape or 0 in b.shape:
        return tuple(jnp.zeros(o.shape, o.dtype) for o in ctx.outputs)  # pyright: ignore[reportReturnType]
    vector = b.ndim < self.ndim
    right = b[..., None] if vector else b
    u, s, vh = svd(self)
    small = np.finfo(s.dtype).eps * max(self.shape[-2:]) if rcond is None else rcond
    kept = s > small * s[..., :1]
    inverse = jnp.where(kept, 1 / jnp.where(kept, s, 1), 0)
    with jax.default_matmul_precision("highest"):
        solution = _adjoint(vh) @ (inverse[..., None].astype(u.dtype) * (_adjoint(u) @ right))
        rest = right - self @ solution
        rank, residuals = jnp.sum(kept, -1, dtype=np.int32), jnp.sum(jnp.real(rest * jnp.conj(rest)), -2)
    results = (solution[..., 0] if vector else solution, residuals, rank, s)
    unused = (jnp.zeros(o.shape, o.dtype) for o in ctx.outputs)
    return tuple(x if 0 not in zero.shape else zero for x, zero in zip(results, unused, strict=True))  # pyright: ignore
