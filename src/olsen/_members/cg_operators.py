r"""The normal equations of many members as one product with a matrix of vectors, one column for
each member.

.. math:: V \mapsto \text{mask} \circ (G V) , \qquad V \mapsto A' A V \;\text{ with }\; A V = D \circ (X (W \circ V))

G is the Gram matrix of all rows with columns of unit length. W holds zeros outside a member's
columns and inverse lengths inside, D the roots of the weights of a member's rows and zeros
elsewhere. Members with fewer rows than columns take the dual form :math:`U \mapsto A A' U`, whose
solution gives the coefficients of minimum norm as :math:`A' U`.

A batch holds members as columns of one iteration: target by target, all members of the batch in
each, then the probes: one for every member, or two of the matrix of all columns, or none.

Means are taken out by rank-one corrections, so sparse data stay sparse. Everything is written
against the array API; only :class:`Rows` knows the type of X.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray

from .._data.moments import Moments, centred_rows, mirror_lower
from .._data.rows import RowData
from .._execution.arrays import Space
from .._execution.threads import cached_property, one_blas_thread
from .._trust import constant_columns
from .cg import ALL

# Which matrix is probed: the matrix of every member, or the matrix of all columns, which holds all
# members' matrices.
OWN = "own"
WHOLE = "whole"


@dataclass(frozen=True)
class Rows:
    """Centred rows of a problem, dense in any namespace or scipy sparse; blocks are cast to float
    on the fly.
    """

    problem: RowData
    centre: Any  # (p,) in the working type; zeros without intercept

    @classmethod
    def from_problem(cls, problem: RowData) -> Rows:
        """Rows centred at the weighted means; CSR, whose products are twice as fast here as with
        CSC, both ways.
        """
        if sp.issparse(problem.X):
            problem = replace(problem, X=sp.csr_array(problem.X))
        return cls(problem, problem.means[0])

    @cached_property
    def root(self) -> Any:
        """Roots of the weights, (n, 1)."""
        weight = self.problem.weight
        space = self.problem.space
        return (
            space.zeros((self.problem.shape[0], 1)) + 1
            if weight is None
            else space.xp.sqrt(weight)[:, None]
        )

    @property
    def entries(self) -> float:
        """Number of stored entries: a product with c columns takes twice as many flops times c."""
        X = self.problem.X
        return float(X.nnz) if sp.issparse(X) else float(X.shape[0]) * X.shape[1]

    def _blocks(self) -> Iterator[tuple[slice, Any]]:
        """Pairs (rows, block in the working type), one block for sparse data."""
        X = self.problem.X
        n, p = self.problem.shape
        if sp.issparse(X):
            yield slice(0, n), X
            return
        dtype = self.centre.dtype
        step = n if X.dtype == dtype else max(1, 2**25 // (8 * p))  # 32 MB
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            yield rows, self.problem.space.xp.astype(X[rows, :], dtype, copy=False)

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
    def spread_and_cancelling(self) -> tuple[Any, NDArray[np.bool_]]:
        """Weighted centred squares over all rows, (p, 1), and the columns that rank-one centring
        would spoil, (p,).

        The squares are zero for constant columns.
        """
        problem = self.problem
        space = problem.space
        X = problem.X
        weight = self.root**2
        if sp.issparse(X):
            mean = self.centre[:, None]
            spread = np.asarray(
                X.multiply(X).T @ weight - 2 * mean * (X.T @ weight) + mean**2 * weight.sum()
            )
        else:
            spread = sum(
                ((block - self.centre) ** 2).T @ weight[rows, :] for rows, block in self._blocks()
            )
        mean = np.asarray(space.get(self.centre))
        cancelling = _far_from_zero(space.get(spread[:, 0]), mean, problem.total_weight)
        if cancelling.any():
            # centred squares of such columns are rounding and cannot show which of the columns are
            # constant
            far_columns = np.flatnonzero(cancelling)
            if sp.issparse(X):
                part = X[:, far_columns].toarray()
            else:
                part = space.get(space.xp.take(X, space.put(far_columns), axis=1))
            constant = far_columns[(part == part[0]).all(axis=0)]
            cancelling[constant] = False
            alive = np.ones(len(cancelling))
            alive[constant] = 0.0
            spread = spread * space.put(alive)[:, None]
        return spread, cancelling


def _far_from_zero(squares: Any, mean: Any, weight: float) -> NDArray[np.bool_]:
    """Columns whose digits rank-one centring would lose, by their centred squares; a Gram is
    centred row by row.
    """
    return np.asarray(squares < 1e-10 * weight * mean**2)


def _product(A: Any, V: Any) -> Any:
    """A V; sparse A takes V by narrow blocks, which stay in cache (2 to 3 times faster at 100
    columns).
    """
    if not sp.issparse(A):
        return A @ V
    product = np.empty((A.shape[0], V.shape[1]))
    width = 32
    for first in range(0, V.shape[1], width):
        columns = slice(first, first + width)
        product[:, columns] = A @ np.ascontiguousarray(V[:, columns])
    return product


@dataclass(frozen=True)
class _Operator:
    """Operator on a matrix of vectors, one column for each system."""

    by_column: ClassVar[tuple[str, ...]]

    def take(self, columns: Any, xp: Any) -> Self:
        """Restrict the operator to some columns; None and single columns, which serve all members,
        stay.
        """
        arrays = {name: getattr(self, name) for name in self.by_column}
        taken = {
            name: xp.take(a, columns, axis=1)
            for name, a in arrays.items()
            if a is not None and a.shape[1] > 1
        }
        return replace(self, **taken)


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
    """Members by their submatrices, A = D (X - 1 centre') W: A'A V, or A A' U + r r' U.

    The rows of a centred A have a null vector, r. Adding r r' makes the dual operator definite and
    changes nothing, since right-hand sides are orthogonal to r; r is zero without intercept.
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
        projection = self.rows.problem.space.xp.sum(self.null * V, axis=0)[None, :]
        return self.forward(self.adjoint(V)) + self.null * projection


@dataclass(frozen=True)
class Batch:
    """Arguments of :func:`cg.iterate`, and the map from its solutions to coefficients."""

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
    """Centred products of all rows, columns in units of their length."""

    G: Any  # (p, p)
    C: Any  # (p, q)
    scale: Any  # (p, 1) one over the lengths, zero for constant columns
    mean_x: Any  # (p,)
    mean_y: Any  # (q,)
    space: Space
    cancelling: NDArray[np.bool_] | None = None  # (p,) columns that rank-one centring would spoil

    @classmethod
    def from_moments(cls, moments: Moments) -> UnitGram:
        """Scale moments to unit columns, in double precision."""
        xp = moments.space.xp
        scale = _inverse_root(xp.linalg.diagonal(moments.G), xp)[:, None]
        return cls(
            G=scale * moments.G * scale.T,
            C=scale * moments.C,
            scale=scale,
            mean_x=moments.mean_x,
            mean_y=moments.mean_y,
            space=moments.space,
        )

    @classmethod
    def in_single(cls, rows: Rows) -> UnitGram:
        """Compute X'X in float32 and X'y in float64, in one pass after the means."""
        problem = rows.problem
        X = problem.X
        Y = problem.Y
        weight = problem.weight
        n, p = problem.shape
        mean_x, mean_y = problem.means
        centred_sample = X[:: max(1, n // 500)] - mean_x
        unit = np.sqrt(
            np.mean(centred_sample * centred_sample, axis=0)
        )  # float32 has a narrow range
        unit[unit == 0] = 1.0
        G = np.zeros((p, p), dtype=np.float32, order="F")
        C = np.zeros((p, Y.shape[1]))
        step = min(n, max(128, 2**26 // (8 * p)))  # rows at a time, 64 MB
        buffer = np.empty((step, p))
        single = np.empty((step, p), dtype=np.float32)
        for first in range(0, n, step):
            block = slice(first, min(first + step, n))
            x, y = centred_rows(
                X[block],
                Y[block],
                None if weight is None else weight[block],
                mean_x=mean_x,
                mean_y=mean_y,
                buffer=buffer[: block.stop - first],
            )
            with one_blas_thread():  # NumPy's other threads would go on spinning beside SciPy's
                C += x.T @ y
            np.divide(x, unit, out=single[: len(x)], casting="same_kind")
            G = la.blas.ssyrk(1.0, single[: len(x)].T, beta=1.0, c=G, lower=1, overwrite_c=1)
        squares = np.diagonal(G) * unit**2
        squares[constant_columns(squares, mean_x, problem.total_weight)] = 0.0
        scale = _inverse_root(squares, np)[:, None]
        single_scale = (scale * unit[:, None]).astype(np.float32)
        G = mirror_lower(G).T
        G *= single_scale
        G *= single_scale.T
        cancelling = (squares > 0) & _far_from_zero(squares, mean_x, problem.total_weight)
        return cls(
            G=G,
            C=scale * C,
            scale=scale,
            mean_x=mean_x,
            mean_y=mean_y,
            space=problem.space,
            cancelling=cancelling,
        )

    def batch(self, mask: Any, probing: str | None) -> Batch:
        """Batch of members whose columns are `mask`, (p, k)."""
        space = self.space
        q = self.C.shape[1]
        p, k = mask.shape
        alive = space.cast(self.scale > 0)
        member_mask = _inside(mask, alive, space)
        masks = [member_mask] * q
        targets = [member_mask * self.C[:, t][:, None] for t in range(q)]
        if probing == OWN:
            masks.append(member_mask)
            targets.append(member_mask * space.put(_noise(p))[:, None])
        elif probing == WHOLE:
            masks += [alive, alive]
            targets.append(alive * space.put(_noise(2 * p).reshape(2, p).T))
        mask = space.xp.concat(masks, axis=1)
        # a GPU moves an array in about the time of the product, so bytes of the mask count there
        boolean_mask = space.name in ("torch", "cupy")  # both multiply numbers by booleans
        mask = mask > 0 if boolean_mask else space.xp.astype(mask, self.G.dtype, copy=False)
        member, probe = _owners(k, q, probing)
        return Batch(
            operator=MaskedGram(self.G, mask),
            B=space.xp.concat(targets, axis=1),
            member=member,
            probe=probe,
            coefficients=lambda X: self.scale * X,
            mean_x=self.mean_x[:, None],
            mean_y=self.mean_y[:, None],
        )


def rows_batch(rows: Rows, mask: Any, *, dual: bool) -> Batch:
    """Batch of members on all rows whose columns are `mask`, (p, k).

    The dual form minimises the norm in the user's units, so W is then the mask alone.
    """
    problem = rows.problem
    space = problem.space
    xp = space.xp
    spread, _ = rows.spread_and_cancelling
    root = rows.root
    mean_y = problem.means[1][:, None]
    k = mask.shape[1]
    q = problem.Y.shape[1]
    W = _inside(mask, space.cast(spread > 0) if dual else _inverse_root(spread, xp), space)
    null = None
    if dual:
        mean_square = xp.sum(W * spread, axis=0) / problem.shape[0]  # of a member's rows
        root = root * _inverse_root(mean_square, xp)[None, :]
        null = (
            root
            * _inverse_root(space.column_squares(root), xp)[None, :]
            * float(problem.fit_intercept)
        )
    members = Submatrices(
        rows, W, D=root if dual or problem.weight is not None else None, null=null
    )
    targets = [root * (problem.Y[:, t][:, None] - mean_y[t, :][None, :]) for t in range(q)]
    if not dual:
        targets = [members.adjoint(T) for T in targets]
    noise = space.put(_noise(targets[0].shape[0]))[:, None]
    probes = noise * space.cast((root if dual else W) > 0)
    without_probes = members.take(space.put(np.tile(np.arange(k), q)), xp)
    member, probe = _owners(k, q, OWN)
    return Batch(
        operator=members.take(space.put(np.tile(np.arange(k), q + 1)), xp),
        B=xp.concat([*targets, probes], axis=1),
        member=member,
        probe=probe,
        coefficients=without_probes.adjoint if dual else lambda X: without_probes.W * X,
        mean_x=rows.centre[:, None],
        mean_y=mean_y,
    )


def _owners(k: int, q: int, probing: str | None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Member of every column, and whether the column is a probe."""
    members = np.arange(k)
    probed = {OWN: members, WHOLE: np.array([ALL, ALL]), None: members[:0]}[probing]
    return np.concatenate([np.tile(members, q), probed]), np.arange(k * q + len(probed)) >= k * q


def _inside(mask: Any, scale: Any, space: Space) -> Any:
    """Scale inside a mask, zero outside, in row order: the mask is a transpose, and mixed orders
    slow every step.
    """
    W = space.zeros(mask.shape)
    W += space.xp.where(mask, scale, space.xp.zeros_like(scale))
    return W


def _noise(size: int) -> NDArray[np.float64]:
    """Right-hand side of a probe, identical in every batch and on every device.

    Gaussian: random signs miss the null direction (1, -1) of a repeated column every other time.
    """
    return np.random.default_rng(0).standard_normal(size)


def _inverse_root(squares: Any, xp: Any) -> Any:
    """1 / sqrt, and 0 for columns of length zero, whose coefficient is zero."""
    positive = squares > 0
    return xp.where(
        positive,
        1 / xp.sqrt(xp.where(positive, squares, xp.ones_like(squares))),
        xp.zeros_like(squares),
    )
