r"""The normal equations of many members as one product with a matrix of vectors, one column for each member.

.. math:: V \mapsto W \circ \bigl(G\,(W \circ V)\bigr), \qquad
          V \mapsto W \circ \bigl(X' (D \circ (X (W \circ V)))\bigr)

W holds zeros outside a member's columns and the Jacobi scaling inside, D the weights of a member's rows and zeros
elsewhere. Members with fewer rows than columns take the dual form, whose solution gives the coefficients of minimum
norm as :math:`W \circ X'(D \circ U)`:

.. math:: U \mapsto D \circ X (W \circ X' (D \circ U))

A batch holds members as columns of one iteration: target by target, all members of the batch in each, then the probes,
one for every member, or two of the whole matrix, or none.

Means are taken out by rank-one corrections, so sparse data stay sparse. Everything is written against the array API;
only :class:`Rows` knows what X is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution.arrays import Space
from .cg import ALL
from .problem import Problem

__all__ = [
    "OWN",
    "WHOLE",
    "Batch",
    "Dual",
    "Gram",
    "Normal",
    "NormalRows",
    "Rows",
    "UnitGram",
    "dual_batch",
    "gram_batch",
    "normal_batch",
    "shared_rows_batch",
]

OWN, WHOLE = "own", "whole"  # what is probed: every member's matrix, or the one that holds them all

_BLOCK_BYTES = 1 << 25


@dataclass(frozen=True)
class Rows:
    """Rows of X about a centre, dense in any namespace or scipy sparse; blocks of them are made float on the fly."""

    X: Any  # (n, p)
    centre: Any  # (p,) in the working type; zeros without intercept
    xp: Any = np
    spread: Any = None  # (p, 1) weighted squares about the centre over all rows, zero for constant columns
    far: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))  # columns that centring would spoil

    @property
    def shape(self) -> tuple[int, int]:
        shape: tuple[int, int] = self.X.shape
        return shape

    @property
    def entries(self) -> float:
        """Numbers stored: a product with c columns takes twice as many flops times c."""
        return float(self.X.nnz) if sp.issparse(self.X) else float(self.shape[0]) * self.shape[1]

    def blocks(self) -> Iterator[tuple[slice, Any]]:
        """Pairs (rows, block in the working type), one block for sparse data."""
        n, p = self.shape
        if sp.issparse(self.X):
            yield slice(0, n), self.X
            return
        dtype = self.centre.dtype
        step = n if self.X.dtype == dtype else max(1, _BLOCK_BYTES // (8 * p))
        for start in range(0, n, step):
            here = slice(start, min(start + step, n))
            yield here, self.xp.astype(self.X[here, :], dtype, copy=False)

    def forward(self, V: Any) -> Any:
        """(X - 1 centre') V."""
        shift = self.centre @ V
        return self.xp.concat([_product(block, V) - shift for _, block in self.blocks()], axis=0)

    def backward(self, T: Any) -> Any:
        """(X - 1 centre')' T."""
        total = -self.centre[:, None] * self.xp.sum(T, axis=0)[None, :]
        for rows, block in self.blocks():
            total = total + _product(block.T, T[rows, :])
        return total

    def normal(self, V: Any, D: Any) -> tuple[Any, Any]:
        """(X - 1 centre')' (D * ((X - 1 centre') V)) and the column sums of the inner bracket, in one pass."""
        shift = self.centre @ V
        product: Any = None
        sums: Any = 0.0
        for rows, block in self.blocks():
            T = _product(block, V)
            T -= shift
            if D is not None:
                T *= D[rows, :]
            part = _product(block.T, T)
            product = part if product is None else product + part
            sums = sums + self.xp.sum(T, axis=0)
        return product - self.centre[:, None] * sums[None, :], sums

    def squares(self, D: Any) -> Any:
        """Sums over rows of D * (X - 1 centre')^2, (p, columns of D); D is (n, c)."""
        if sp.issparse(self.X):
            mean = self.centre[:, None]
            second = self.X.multiply(self.X).T @ D
            return np.asarray(second - 2 * mean * (self.X.T @ D) + mean**2 * D.sum(axis=0))
        total: Any = 0.0
        for rows, block in self.blocks():
            total = total + ((block - self.centre) ** 2).T @ D[rows, :]
        return total


@dataclass(frozen=True)
class _Operator:
    """Acts on a matrix of vectors, one column for each system."""

    by_column: ClassVar[tuple[str, ...]]

    def take(self, columns: Any, xp: Any) -> Self:
        """Only some columns; None and single columns, which serve all members, stay."""
        arrays = {name: getattr(self, name) for name in self.by_column}
        kept = {name: a for name, a in arrays.items() if a is not None and a.shape[1] > 1}
        return replace(self, **{name: xp.take(a, columns, axis=1) for name, a in kept.items()})


@dataclass(frozen=True)
class Gram(_Operator):
    """Members on one Gram matrix: W * (G @ (W * V))."""

    by_column: ClassVar[tuple[str, ...]] = ("W",)

    G: Any  # (p, p)
    W: Any  # (p, columns)

    def __call__(self, V: Any) -> Any:
        product = self.G @ (self.W * V)
        product *= self.W
        return product


@dataclass(frozen=True)
class UnitGram(_Operator):
    """Members on a Gram matrix of unit diagonal: mask * (G @ V), where V is zero outside the mask.

    Two passes over memory less than :class:`Gram` at the price of a scaled copy of G; on a GPU that moves an array in
    about the time of the product, they count.
    """

    by_column: ClassVar[tuple[str, ...]] = ("mask",)
    G: Any  # (p, p)
    mask: Any  # (p, columns)
    space: Space

    def __call__(self, V: Any) -> Any:
        product = self.G @ V
        self.space.clear_outside(product, self.mask)
        return product


class NormalRows(Protocol):
    """What :class:`Normal` asks of rows, wherever they are."""

    @property
    def entries(self) -> float:
        """Numbers stored."""

    def normal(self, V: Any, D: Any) -> tuple[Any, Any]:
        """As :meth:`Rows.normal`."""


@dataclass(frozen=True)
class Normal(_Operator):
    """Members on their own rows without a Gram matrix: W * (A' A (W * V)).

    Centring about the member's own rows is one more rank-one correction, with ``shift`` the mean of these rows less the
    common centre.
    """

    by_column: ClassVar[tuple[str, ...]] = ("W", "D", "shift")
    rows: NormalRows
    W: Any  # (p, columns)
    D: Any  # (n, columns), (n, 1) or None: weights of the rows
    shift: Any = None  # (p, columns), or None where the rows have mean `centre`

    def __call__(self, V: Any) -> Any:
        product, sums = self.rows.normal(self.W * V, self.D)
        if self.shift is not None:
            product -= self.shift * sums[None, :]
        product *= self.W
        return product


@dataclass(frozen=True)
class Dual(_Operator):
    """Members with fewer rows than columns: A A' U + r r' U, with A = D (X - 1 centre' - 1 shift') W.

    The rows of a centred A have a null vector, r. Adding r r' makes the operator definite and changes nothing, since
    right-hand sides are orthogonal to r; r is zero without intercept.
    """

    by_column: ClassVar[tuple[str, ...]] = ("W", "D", "shift", "null")
    rows: Rows
    W: Any  # (p, columns)
    D: Any  # (n, columns) or (n, 1): roots of the weights, over the length scale of the rows
    shift: Any  # (p, columns) or None
    null: Any  # (n, columns), (n, 1) or None

    def adjoint(self, U: Any) -> Any:
        """W * A' U: the coefficients that belong to U."""
        T = self.D * U
        V = self.rows.backward(T)
        if self.shift is not None:
            V -= self.shift * self.rows.xp.sum(T, axis=0)[None, :]
        return self.W * V

    def __call__(self, U: Any) -> Any:
        xp, V = self.rows.xp, self.W * self.adjoint(U)
        product = self.rows.forward(V)
        if self.shift is not None:
            product -= xp.sum(self.shift * V, axis=0)[None, :]
        product *= self.D
        return product if self.null is None else product + self.null * xp.sum(self.null * U, axis=0)[None, :]


def _product(A: Any, V: Any) -> Any:
    """A V; sparse A with few columns of V at a time, which stay in cache (2 to 3 times faster at 100 columns)."""
    if not sp.issparse(A):
        return A @ V
    out = np.empty((A.shape[0], V.shape[1]))
    for first in range(0, V.shape[1], 32):
        out[:, first : first + 32] = A @ np.ascontiguousarray(V[:, first : first + 32])
    return out


def _column_squares(squares: Any, raw: Any, xp: Any) -> Any:
    """Squared lengths of columns about the member's means, zero where they are rounding only.

    `raw` are the squares about the common centre; the difference cancels where a column holds one value on all of the
    member's rows.
    """
    return xp.where(squares > 1e-13 * raw, squares, xp.zeros_like(squares))


@dataclass(frozen=True)
class Batch:
    """What :func:`iteration.iterate` needs, and how its answer becomes coefficients."""

    operator: Any
    B: Any
    member: NDArray[np.int64]
    probe: NDArray[np.bool_]
    coefficients: Callable[[Any], Any]  # solutions of the targets, (rows, k q) -> (p, k q)
    mean_x: Any  # (p, 1) or (p, k)
    mean_y: Any  # (q, 1) or (q, k)

    def recover(self, X: Any, xp: Any) -> tuple[Any, Any]:
        """Coefficients (p, q, k) and intercepts (q, k) from the solutions of all columns."""
        q = self.mean_y.shape[0]
        k = int(np.count_nonzero(~self.probe)) // q
        coef = self.coefficients(X[:, : k * q])
        coef = xp.reshape(coef, (coef.shape[0], q, k))
        return coef, self.mean_y - xp.sum(self.mean_x[:, None, :] * coef, axis=0)


def gram_batch(problem: Problem, mask: Any, probing: str | None) -> Batch:
    """Members given by the columns of `mask`, (p, k), on the Gram matrix of all rows."""
    moments = problem.moments
    squares = problem.space.xp.linalg.diagonal(moments.G)
    batch = shared_rows_batch(problem, mask, moments.C, squares, moments.mean_y, probing)
    batch = replace(batch, mean_x=moments.mean_x[:, None])
    if problem.space.on_host:
        return replace(batch, operator=Gram(moments.G, batch.operator))
    scale = _inverse_root(squares, problem.space.xp)[:, None]
    unit = UnitGram(scale * moments.G * scale.T, batch.operator > 0, problem.space)
    return replace(batch, operator=unit, coefficients=lambda X: scale * X)


def shared_rows_batch(problem: Problem, mask: Any, C: Any, squares: Any, mean_y: Any, probing: str | None) -> Batch:
    """Members of all rows, from X'y and the squares of the columns; the operator is W alone, and means are zero."""
    xp, q = problem.space.xp, C.shape[1]
    p, k = mask.shape
    scale = _inverse_root(squares, xp)[:, None]
    W = _masked(mask, scale, problem.space)
    copies, targets = _with_probes([W * C[:, t][:, None] for t in range(q)], W, probing, problem.space)
    blocks = [W] * copies
    if probing == WHOLE:
        both = problem.space.put(_noise(2 * p).reshape(2, p).T)
        blocks, targets = [*blocks, scale, scale], [*targets, xp.where(scale > 0, both, xp.zeros_like(both))]
    member, probe = _owners(k, q, probing)
    W_all = xp.concat(blocks, axis=1)
    B = xp.concat(targets, axis=1)
    zero = problem.space.zeros((p, 1))
    return Batch(W_all, B, member, probe, lambda X: W_all[:, : k * q] * X, zero, mean_y[:, None])


def normal_batch(problem: Problem, rows: Rows, mask: Any, row_mask: Any, probing: str | None) -> Batch:
    """Members on their own rows, given by the columns of `row_mask`, (n, k) or None for all, without a Gram matrix."""
    xp, (k, q) = rows.xp, (mask.shape[1], problem.Y.shape[1])
    D, mean_y, shift, squares = _row_statistics(problem, rows, row_mask)
    scale = _inverse_root(squares, xp)
    W = _masked(mask, scale, problem.space)
    targets = [W * rows.backward(D * (problem.Y[:, t][:, None] - mean_y[t, :][None, :])) for t in range(q)]
    copies, targets = _with_probes(targets, W, probing, problem.space)
    member, probe = _owners(k, q, probing)
    W_all = xp.concat([W] * copies, axis=1)
    plain = row_mask is None and problem.weight is None
    operator = Normal(rows, W_all, None if plain else _repeat(D, copies, xp), _repeat(shift, copies, xp))
    mean_x = rows.centre[:, None] if shift is None else rows.centre[:, None] + shift
    B = xp.concat(targets, axis=1)
    return Batch(operator, B, member, probe, lambda X: W_all[:, : k * q] * X, mean_x, mean_y)


def dual_batch(problem: Problem, rows: Rows, mask: Any, row_mask: Any, probing: str | None) -> Batch:
    """Members with fewer rows than columns, by their rows: minimum norm in the users' units, so W is the mask alone."""
    xp, (k, q) = rows.xp, (mask.shape[1], problem.Y.shape[1])
    D, mean_y, shift, squares = _row_statistics(problem, rows, row_mask)
    W = _masked(mask, xp.astype(squares > 0, squares.dtype), problem.space)  # without columns that hold one value
    taken = xp.astype(D > 0, W.dtype)
    spread = xp.sum(W * squares, axis=0) / xp.sum(taken, axis=0)  # mean squared length of a member's rows
    root = xp.sqrt(D) * _inverse_root(spread, xp)[None, :]
    targets = [root * (problem.Y[:, t][:, None] - mean_y[t, :][None, :]) for t in range(q)]
    null = root * _inverse_root(xp.sum(root * root, axis=0), xp)[None, :] if problem.fit_intercept else None
    copies, targets = _with_probes(targets, root, probing, problem.space)
    member, probe = _owners(k, q, probing)
    parts = [_repeat(part, copies, xp) for part in (W, root, shift, null)]
    operator = Dual(rows, *parts)
    first = problem.space.put(np.arange(k * q))
    mean_x = rows.centre[:, None] if shift is None else rows.centre[:, None] + shift
    B = xp.concat(targets, axis=1)
    return Batch(operator, B, member, probe, lambda U: operator.take(first, xp).adjoint(U), mean_x, mean_y)


def _row_statistics(problem: Problem, rows: Rows, row_mask: Any) -> tuple[Any, Any, Any, Any]:
    """Weights of the rows (n, c), mean targets (q, c), shifted means (p, c) and centred squares (p, c) of members.

    c is the number of members, or one when all members have all rows.
    """
    xp, space = rows.xp, problem.space
    D = space.zeros((rows.shape[0], 1)) + 1 if row_mask is None else space.cast(row_mask)
    if problem.weight is not None:
        D = D * problem.weight[:, None]
    total = xp.sum(D, axis=0)
    raw = rows.spread if row_mask is None else rows.squares(D) * xp.astype(rows.spread > 0, D.dtype)
    if not problem.fit_intercept:
        return D, space.zeros((problem.Y.shape[1], D.shape[1])), None, raw
    mean_y = (problem.Y.T @ D) / total[None, :]
    if row_mask is None:
        return D, mean_y, None, raw
    shift = rows.backward(D) / total[None, :]
    squares = _column_squares(raw - total[None, :] * shift**2, raw, xp)
    return D, mean_y, shift, squares


def _owners(k: int, q: int, probing: str | None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Member of every column, and which columns are probes."""
    members = np.arange(k)
    extra = {OWN: members, WHOLE: np.array([ALL, ALL]), None: members[:0]}[probing]
    return np.concatenate([np.tile(members, q), extra]), np.arange(k * q + len(extra)) >= k * q


def _with_probes(targets: list[Any], inside: Any, probing: str | None, space: Space) -> tuple[int, list[Any]]:
    """Right-hand sides with one of noise for every member where these are probed, and how many there are of each."""
    if probing != OWN:
        return len(targets), targets
    noise = space.put(_noise(inside.shape[0]))[:, None]
    return len(targets) + 1, [*targets, space.xp.where(inside > 0, noise, space.xp.zeros_like(noise))]


def _masked(mask: Any, scale: Any, space: Space) -> Any:
    """The scale inside a mask, zero outside, in rows: the mask is a transpose, and mixed orders slow every step."""
    W = space.zeros(mask.shape)
    W += space.xp.where(mask, scale, space.xp.zeros_like(scale))
    return W


def _noise(size: int) -> NDArray[np.float64]:
    """Right-hand side of a probe, the same in every batch and on every device.

    Gaussian: random signs miss the null direction (1, -1) of a repeated column every other time.
    """
    return np.random.default_rng(0).standard_normal(size)


def _inverse_root(squares: Any, xp: Any) -> Any:
    """1 / sqrt, and 0 for columns without length: their coefficient is zero."""
    positive = squares > 0
    return xp.where(positive, 1 / xp.sqrt(xp.where(positive, squares, xp.ones_like(squares))), xp.zeros_like(squares))


def _repeat(array: Any, copies: int, xp: Any) -> Any:
    """The array for every target and probe; single columns serve all."""
    return array if array is None or array.shape[1] == 1 else xp.concat([array] * copies, axis=1)
