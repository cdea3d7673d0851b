r"""The normal equations of many members as one product with a matrix of vectors, one column for each member.

.. math:: V \mapsto \text{mask} \circ (G V) , \qquad V \mapsto A' A V \;\text{ with }\; A V = D \circ (X (W \circ V))

G is the Gram matrix of all rows with columns of unit length. W holds zeros outside a member's columns and inverse
lengths inside, D the roots of the weights of a member's rows and zeros elsewhere. Members with fewer rows than columns
take the dual form :math:`U \mapsto A A' U`, whose solution gives the coefficients of minimum norm as :math:`A' U`.

A batch holds members as columns of one iteration: target by target, all members of the batch in each, then the probes,
one for every member, or two of the whole matrix, or none.

Means are taken out by rank-one corrections, so sparse data stay sparse. Everything is written against the array API;
only :class:`Rows` knows what X is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution.arrays import Space
from .._execution.threads import cached_property, one_blas_thread
from .._moments.moments import Moments, centred_rows, mirror_lower
from .._trust import constant_columns
from .cg import ALL
from .problem import Problem

OWN, WHOLE = "own", "whole"  # what is probed: every member's matrix, or the one that holds them all


@dataclass(frozen=True)
class Rows:
    """Rows of a problem about their mean, dense in any namespace or scipy sparse; blocks are made float on the fly."""

    problem: Problem
    centre: Any  # (p,) in the working type; zeros without intercept

    @classmethod
    def from_problem(cls, problem: Problem) -> Rows:
        """About the weighted means; CSR, since its products are twice as fast here as those of CSC, both ways."""
        problem = replace(problem, X=sp.csr_array(problem.X)) if sp.issparse(problem.X) else problem
        return cls(problem, problem.means[0])

    @cached_property
    def root(self) -> Any:
        """Roots of the weights, (n, 1)."""
        weight, space = self.problem.weight, self.problem.space
        return space.zeros((self.problem.shape[0], 1)) + 1 if weight is None else space.xp.sqrt(weight)[:, None]

    @property
    def entries(self) -> float:
        """Numbers stored: a product with c columns takes twice as many flops times c."""
        X = self.problem.X
        return float(X.nnz) if sp.issparse(X) else float(X.shape[0]) * X.shape[1]

    def _blocks(self) -> Iterator[tuple[slice, Any]]:
        """Pairs (rows, block in the working type), one block for sparse data."""
        X, (n, p), dtype = self.problem.X, self.problem.shape, self.centre.dtype
        step = n if sp.issparse(X) or X.dtype == dtype else max(1, 2**25 // (8 * p))  # 32 MB
        for start in range(0, n, step):
            here = slice(start, min(start + step, n))
            yield here, X if sp.issparse(X) else self.problem.space.xp.astype(X[here, :], dtype, copy=False)

    def forward(self, V: Any) -> Any:
        """(X - 1 centre') V."""
        shift = self.centre @ V
        parts = [_product(block, V) for _, block in self._blocks()]
        product = parts[0] if len(parts) == 1 else self.problem.space.xp.concat(parts, axis=0)
        product -= shift
        return product

    def backward(self, T: Any) -> Any:
        """(X - 1 centre')' T."""
        total = -self.centre[:, None] * self.problem.space.xp.sum(T, axis=0)[None, :]
        for rows, block in self._blocks():
            total += _product(block.T, T[rows, :])
        return total

    @cached_property
    def spread_and_far(self) -> tuple[Any, NDArray[np.bool_]]:
        """Weighted squares about the centre over all rows, (p, 1), zero for constant columns.

        And the columns that rank-one centring would spoil, (p,).
        """
        problem, space, X = self.problem, self.problem.space, self.problem.X
        weight = self.root**2
        if sp.issparse(X):
            mean = self.centre[:, None]
            spread = np.asarray(X.multiply(X).T @ weight - 2 * mean * (X.T @ weight) + mean**2 * weight.sum())
        else:
            spread = sum(((block - self.centre) ** 2).T @ weight[rows, :] for rows, block in self._blocks())
        mean = np.asarray(space.get(self.centre))
        far = _far_from_zero(space.get(spread[:, 0]), mean, problem.total_weight)
        if far.any():  # squares about the mean cannot tell which of them are constant, they are rounding there
            some, alive = np.flatnonzero(far), np.ones(len(far))
            part = X[:, some].toarray() if sp.issparse(X) else space.get(space.xp.take(X, space.put(some), axis=1))
            constant = some[(part == part[0]).all(axis=0)]
            far[constant], alive[constant] = False, 0.0
            spread = spread * space.put(alive)[:, None]
        return spread, far


def _far_from_zero(squares: Any, mean: Any, weight: float) -> NDArray[np.bool_]:
    """Columns that rank-one centring would lose, by their squares about the mean; a Gram is centred row by row."""
    return np.asarray(squares < 1e-10 * weight * mean**2)


def _product(A: Any, V: Any) -> Any:
    """A V; sparse A with few columns of V at a time, which stay in cache (2 to 3 times faster at 100 columns)."""
    if not sp.issparse(A):
        return A @ V
    out = np.empty((A.shape[0], V.shape[1]))
    for few in (slice(first, first + 32) for first in range(0, V.shape[1], 32)):
        out[:, few] = A @ np.ascontiguousarray(V[:, few])
    return out


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
class MaskedGram(_Operator):
    """Members on one Gram matrix: mask * (G @ V), where V is zero outside the mask."""

    by_column: ClassVar[tuple[str, ...]] = ("mask",)
    G: Any  # (p, p)
    mask: Any  # (p, columns)

    def __call__(self, V: Any) -> Any:
        product = self.G @ V
        product *= self.mask
        return product


@dataclass(frozen=True)
class Submatrices(_Operator):
    """Members on their own columns, A = D (X - 1 centre') W: A'A V, or A A' U + r r' U.

    The rows of a centred A have a null vector, r. Adding r r' makes the dual operator definite and changes nothing,
    since right-hand sides are orthogonal to r; r is zero without intercept.
    """

    by_column: ClassVar[tuple[str, ...]] = ("W", "D", "null")
    rows: Rows
    W: Any  # (p, columns)
    D: Any  # (n, columns), (n, 1) or None: roots of the weights of the rows
    null: Any = None  # (n, columns): the dual form

    def forward(self, V: Any) -> Any:
        """A V."""
        T = self.rows.forward(self.W * V)
        return T if self.D is None else self.D * T

    def adjoint(self, T: Any) -> Any:
        """A'T."""
        return self.W * self.rows.backward(T if self.D is None else self.D * T)

    def __call__(self, V: Any) -> Any:
        if self.null is None:
            return self.adjoint(self.forward(V))
        return (
            self.forward(self.adjoint(V)) + self.null * self.rows.problem.space.xp.sum(self.null * V, axis=0)[None, :]
        )


@dataclass(frozen=True)
class Batch:
    """What :func:`cg.iterate` needs, and how its answer becomes coefficients."""

    operator: Any
    B: Any
    member: NDArray[np.int64]
    probe: NDArray[np.bool_]
    coefficients: Callable[[Any], Any]  # solutions of the targets, (rows, k q) -> (p, k q)
    mean_x: Any  # (p, 1)
    mean_y: Any  # (q, 1)

    def recover(self, X: Any, xp: Any) -> tuple[Any, Any]:
        """Coefficients (p, q, k) and intercepts (q, k) from the solutions of all columns."""
        q = self.mean_y.shape[0]
        k = int(np.count_nonzero(~self.probe)) // q
        coef = self.coefficients(X[:, : k * q])
        coef = xp.reshape(coef, (coef.shape[0], q, k))
        return coef, self.mean_y - xp.sum(self.mean_x[:, None, :] * coef, axis=0)


@dataclass(frozen=True)
class UnitGram:
    """Products of all rows about their means, columns in units of their length."""

    G: Any  # (p, p)
    C: Any  # (p, q)
    scale: Any  # (p, 1) one over the lengths, zero for constant columns
    mean_x: Any  # (p,)
    mean_y: Any  # (q,)
    space: Space
    far: NDArray[np.bool_] | None = None  # as in Rows

    @classmethod
    def from_moments(cls, moments: Moments) -> UnitGram:
        """In double precision."""
        xp = moments.space.xp
        scale = _inverse_root(xp.linalg.diagonal(moments.G), xp)[:, None]
        means = moments.mean_x, moments.mean_y
        return cls(scale * moments.G * scale.T, scale * moments.C, scale, *means, moments.space)

    @classmethod
    def in_single(cls, rows: Rows) -> UnitGram:
        """X'X in float32, X'y in float64; one pass after the means."""
        problem = rows.problem
        X, Y, weight, (n, p), (mean_x, mean_y) = problem.X, problem.Y, problem.weight, problem.shape, problem.means
        some = X[:: max(1, n // 500)] - mean_x
        unit = np.sqrt(np.mean(some * some, axis=0))  # float32 has a narrow range
        unit[unit == 0] = 1.0
        G, C = np.zeros((p, p), dtype=np.float32, order="F"), np.zeros((p, Y.shape[1]))
        step = min(n, max(128, 2**26 // (8 * p)))  # rows at a time, 64 MB
        buffer, single = np.empty((step, p)), np.empty((step, p), dtype=np.float32)
        for first in range(0, n, step):
            here = slice(first, min(first + step, n))
            w, out = None if weight is None else weight[here], buffer[: here.stop - first]
            x, y = centred_rows(X[here], Y[here], w, mean_x, mean_y, out)
            with one_blas_thread():  # NumPy's others would go on spinning beside those of SciPy
                C += x.T @ y
            np.divide(x, unit, out=single[: len(x)], casting="same_kind")
            G = la.blas.ssyrk(1.0, single[: len(x)].T, beta=1.0, c=G, lower=1, overwrite_c=1)
        squares = np.diagonal(G) * unit**2
        squares[constant_columns(squares, mean_x, problem.total_weight)] = 0.0
        scale = _inverse_root(squares, np)[:, None]
        G, away = mirror_lower(G).T, (scale * unit[:, None]).astype(np.float32)
        G *= away
        G *= away.T
        far = (squares > 0) & _far_from_zero(squares, mean_x, problem.total_weight)
        return cls(G, scale * C, scale, mean_x, mean_y, problem.space, far)

    def batch(self, mask: Any, probing: str | None) -> Batch:
        """Members given by the columns of `mask`, (p, k)."""
        space, q, (p, k) = self.space, self.C.shape[1], mask.shape
        inside = _inside(mask, space.cast(self.scale > 0), space)
        masks, targets = [inside] * q, [inside * self.C[:, t][:, None] for t in range(q)]
        if probing == OWN:
            masks, targets = [*masks, inside], [*targets, inside * space.put(_noise(p))[:, None]]
        elif probing == WHOLE:
            both, alive = space.put(_noise(2 * p).reshape(2, p).T), space.cast(self.scale > 0)
            masks, targets = [*masks, alive, alive], [*targets, alive * both]
        mask = space.xp.concat(masks, axis=1)
        # a GPU moves an array in about the time of the product, so bytes of the mask count there
        small = space.name in ("torch", "cupy")  # which multiply numbers by truth values
        mask = mask > 0 if small else space.xp.astype(mask, self.G.dtype, copy=False)
        B = space.xp.concat(targets, axis=1)
        means = self.mean_x[:, None], self.mean_y[:, None]
        return Batch(MaskedGram(self.G, mask), B, *_owners(k, q, probing), lambda X: self.scale * X, *means)


def rows_batch(rows: Rows, mask: Any, *, dual: bool) -> Batch:
    """Members of some columns, given by `mask` (p, k), on all rows.

    The norm that the dual form makes minimal is that of users' units, so W is then the mask alone.
    """
    problem, space, xp, (spread, _) = rows.problem, rows.problem.space, rows.problem.space.xp, rows.spread_and_far
    root, mean_y, (k, q) = rows.root, problem.means[1][:, None], (mask.shape[1], problem.Y.shape[1])
    W = _inside(mask, space.cast(spread > 0) if dual else _inverse_root(spread, xp), space)
    null = None
    if dual:
        length = xp.sum(W * spread, axis=0) / problem.shape[0]  # mean square of a member's rows
        root = root * _inverse_root(length, xp)[None, :]
        null = root * _inverse_root(space.column_squares(root), xp)[None, :] * float(problem.fit_intercept)
    one = Submatrices(rows, W, root if dual or problem.weight is not None else None, null)
    targets = [root * (problem.Y[:, t][:, None] - mean_y[t, :][None, :]) for t in range(q)]
    targets = targets if dual else [one.adjoint(T) for T in targets]
    noise = space.put(_noise(targets[0].shape[0]))[:, None]
    B = xp.concat([*targets, noise * space.cast((root if dual else W) > 0)], axis=1)
    operator = one.take(space.put(np.tile(np.arange(k), q + 1)), xp)
    first = one.take(space.put(np.tile(np.arange(k), q)), xp)
    means = rows.centre[:, None], mean_y
    return Batch(operator, B, *_owners(k, q, OWN), first.adjoint if dual else lambda X: first.W * X, *means)


def _owners(k: int, q: int, probing: str | None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Member of every column, and which columns are probes."""
    members = np.arange(k)
    extra = {OWN: members, WHOLE: np.array([ALL, ALL]), None: members[:0]}[probing]
    return np.concatenate([np.tile(members, q), extra]), np.arange(k * q + len(extra)) >= k * q


def _inside(mask: Any, scale: Any, space: Space) -> Any:
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
