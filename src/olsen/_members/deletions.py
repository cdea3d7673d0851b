r"""An ensemble without each of its rows in turn: sums over members, rows in blocks and members in batches.

Take members on all rows. With rows :math:`a_l` about their means, weights w, shares :math:`s_l = w_l / \sum w` (zero
without an intercept) and :math:`P_i = G_{SS}^{-1}`, zero outside the columns of member i,

.. math:: e_{il} = \frac{y_l - \bar y - a_l' b_i}{1 - s_l - w_l a_l' P_i a_l} , \qquad
          b_i - b_{i,-l} = w_l P_i a_l e_{il}

so a block of rows and a batch of members are one stacked product :math:`P_i A`: :math:`2 m^2` flops a row and member,
and nothing larger than a batch is kept. Status: exact. Rows are what threads share, so that sums over members do not
depend on threads.

**Complement form.** With P the inverse of the whole Gram matrix, C the columns a member leaves out and :math:`g_l = P
a_l`, :math:`P_i a_l = g_l - P_{:C} P_{CC}^{-1} g_{l,C}`: the same stacked product of size p - m, on g in place of a
and P in place of G, with one product by P for all members. Status: exact.

Members that are not on all rows, interpolate them, or whose inverse is not to be trusted go one by one to
``leave_one_out``; so do single rows that a member fits too closely, unless their deletion costs a rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution import memory
from .._execution.threads import Sharing
from .._moments import weighted_mean
from .._trust import LARGEST_INFLATION, costs_a_rank
from ..subsets import Subsets
from .leave_one_out import MemberDeletion, delete_each_row, doubtful_below, inverses, keeps_all_directions
from .problem import Problem

__all__ = ["Deleted", "Operator", "TrainingRows", "Visit", "delete_rows", "rows_of"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# Is told of coefficient changes summed over some members, (q, columns, rows), times the members' weights. Several times
# for the same rows, but never by two threads at once.
Visit = Callable[[Indices, Any, NDArray[np.float64]], None]

BLOCK_BYTES = 1 << 18  # of rows: they stay in the cache of a core while members are applied to them
BATCH_BYTES = 3 << 17  # of a batch of members, for the same reason
GROUP_BYTES = 1 << 26  # of inverses at a time
LARGEST_WHOLE_INFLATION = LARGEST_INFLATION**0.5  # of all columns: the complement form multiplies by it once more


@dataclass(frozen=True)
class Operator:
    """Derivative of the ensemble with respect to the targets.

    Of coefficients it is :math:`M A' W + F`, with rows A about the means of all, of predictions at them `centre`.
    """

    M: NDArray[np.float64]  # (p, p)
    F: NDArray[np.float64] | None  # (p, n), of members that have no place in M; None: zero
    centre: NDArray[np.float64]  # (n,) without the scale: share of the mean
    moved: NDArray[np.float64]  # (n,) what the scale applies to


@dataclass(frozen=True)
class Deleted:
    """Sums over members, times their weights; the scale is not in them."""

    coef: NDArray[np.float64]  # (p, q)
    intercept: NDArray[np.float64]  # (q,)
    residual: NDArray[np.float64]  # (n, q) y_l minus the prediction for row l without row l
    mean_y: NDArray[np.float64]  # (n, q) mean target without row l
    mean_change: NDArray[np.float64]  # (n, q) mean target minus the same without row l
    moved: NDArray[np.float64]  # (n, q) what row l changes of the prediction at the means of all rows
    operator: Operator | None

    @classmethod
    def zeros(cls, n: int, p: int, q: int, operator: bool) -> Deleted:
        """Sums to begin with."""
        empty = Operator(np.zeros((p, p)), None, np.zeros(n), np.zeros(n)) if operator else None
        a, b, c, d = np.zeros((4, n, q))
        return cls(np.zeros((p, q)), np.zeros(q), a, b, c, d, empty)


@dataclass(frozen=True)
class TrainingRows:
    """Rows of a problem about their means, read in blocks."""

    problem: Problem
    mean_x: NDArray[np.float64]  # (p,)
    mean_y: NDArray[np.float64]  # (q,)
    dead: NDArray[np.int64]  # columns that are constant

    @cached_property
    def weight(self) -> NDArray[np.float64]:
        """Weights of the rows, (n,)."""
        return np.ones(len(self.problem.Y)) if self.problem.weight is None else self.problem.weight

    @cached_property
    def share(self) -> NDArray[np.float64]:
        """Share of every row in the mean, (n,); zeros without an intercept."""
        return self.weight / self.weight.sum() if self.problem.fit_intercept else np.zeros(len(self.weight))

    @cached_property
    def _X(self) -> Any:
        return sp.csr_array(self.problem.X) if sp.issparse(self.problem.X) else self.problem.X

    def blocks(self) -> list[slice]:
        """Consecutive rows; how they are cut depends on the shape alone, and so do sums."""
        n, p = self.problem.shape
        most = int(np.clip(BLOCK_BYTES // (8 * (p + 1)), 64, 2048))
        count = -(-n // min(most, max(64, -(-n // 4))))
        edges = np.linspace(0, n, count + 1).astype(int)
        return [slice(a, b) for a, b in pairwise(edges)]

    def block(self, rows: slice) -> NDArray[np.float64]:
        """Columns about their means of some rows, (p + 1, rows); the last one is zero, to fill up members."""
        part = self._X[rows]
        x = np.zeros((self.problem.shape[1] + 1, rows.stop - rows.start))
        np.subtract(part.toarray().T if sp.issparse(part) else part.T, self.mean_x[:, None], out=x[:-1])
        x[self.dead] = 0.0
        return x


def delete_rows(
    problem: Problem,
    features: Subsets,
    samples: Subsets | None,
    weights: Array,
    sharing: Sharing,
    *,
    visit: Visit | None = None,
    operator: bool = False,
) -> tuple[Deleted, TrainingRows]:
    """All sums; `visit` is told of the changes of coefficients, which nobody may have room for at once."""
    (n, p), q = problem.shape, problem.Y.shape[1]
    members = np.flatnonzero(weights)
    sums = Deleted.zeros(n, p, q, operator)
    tall = members[features.sizes[members] < n - problem.fit_intercept] if samples is None else members[:0]
    if len(tall) and _gram_pays(problem, features.sizes[tall]):
        sweep = _Sweep.over(problem, features, weights, sharing, sums, visit)
        left_over = sweep.run(tall)
        rows = sweep.rows
    else:
        left_over, rows = tall, rows_of(problem)
    others = np.union1d(np.setdiff1d(members, tall), left_over)
    sums = _add_one_by_one(rows, features, samples, weights, others, sharing, sums, visit)
    return sums, rows


def _gram_pays(problem: Problem, sizes: Indices) -> bool:
    """Whether one Gram matrix of all columns is less work than one for each member, or saves copies of many rows."""
    n, p = problem.shape
    many_rows = p <= n and 32.0 * n * float(sizes.max()) > GROUP_BYTES
    return many_rows or float(p) ** 2 <= 2 * float(np.sum(sizes.astype(float) ** 2))


def rows_of(problem: Problem, dead: Indices | None = None) -> TrainingRows:
    """Rows about plain means; where no Gram matrix is made, members centre their columns themselves."""
    p, q = problem.shape[1], problem.Y.shape[1]
    dead = np.empty(0, dtype=np.int64) if dead is None else dead
    if not problem.fit_intercept:
        return TrainingRows(problem, np.zeros(p), np.zeros(q), dead)
    return TrainingRows(
        problem, weighted_mean(problem.X, problem.weight), weighted_mean(problem.Y, problem.weight), dead
    )


@dataclass(frozen=True)
class _Form:
    """Members as principal submatrices: of the Gram matrix, or what they leave out as submatrices of its inverse."""

    subsets: Subsets  # of all members
    G: Array  # (p + 1, p + 1), the last row and column zero
    C: Array  # (p + 1, q)
    whole: tuple[Array, Array] | None  # inverse (p, p) and solution (p, q) of all columns, in the complement form
    inflation: float  # of all columns, in the complement form

    @classmethod
    def direct(cls, features: Subsets, G: Array, C: Array) -> _Form:
        return cls(features, np.pad(G, (0, 1)), np.pad(C, ((0, 1), (0, 0))), None, 1.0)

    def complement(self) -> _Form | None:
        """The other form; None where the inverse of the whole matrix is not to be trusted."""
        P, inflation = inverses(self.G[None, :-1, :-1])
        if not inflation[0] < LARGEST_WHOLE_INFLATION:
            return None
        solution = P[0] @ self.C[:-1]
        return _Form(
            self.subsets.complement(),
            np.pad(P[0], (0, 1)),
            np.pad(solution, ((0, 1), (0, 0))),
            (P[0], solution),
            float(inflation[0]),
        )


@dataclass(frozen=True)
class _Batch:
    """Some members with their inverses, filled up to the same size by columns of zeros."""

    members: Indices  # (b,)
    weights: Array  # (b,) of the members in the ensemble
    columns: Indices  # (b, m), those of the form
    solver: Array  # (b, m + q, m) inverses and, below, coefficients: one product serves both
    doubt: Array  # (b,) what is left of a row below which its residual is not believed

    @property
    def inverse(self) -> Array:
        return self.solver[:, : self.columns.shape[1]]

    @property
    def coef(self) -> Array:
        return self.solver[:, self.columns.shape[1] :]

    def adder(self, n_columns: int) -> sp.csc_array:
        """Adds what members have in their columns to all columns and, of no use, what is below to one more."""
        columns = np.full(self.solver.shape[:2], n_columns, dtype=np.int32)
        columns[:, : self.columns.shape[1]] = self.columns
        ends = np.arange(columns.size + 1, dtype=np.int32)
        return sp.csc_array((np.ones(columns.size), columns.ravel(), ends), shape=(n_columns + 1, columns.size))

    def take(self, kept: NDArray[np.bool_]) -> _Batch:
        """Only some of the members."""
        return _Batch(self.members[kept], self.weights[kept], self.columns[kept], self.solver[kept], self.doubt[kept])


@dataclass(frozen=True)
class _Sweep:
    """One pass over members on all rows."""

    rows: TrainingRows
    form: _Form
    features: Subsets
    weights: Array
    sharing: Sharing
    sums: Deleted
    visit: Visit | None

    @classmethod
    def over(
        cls, problem: Problem, features: Subsets, weights: Array, sharing: Sharing, sums: Deleted, visit: Visit | None
    ) -> _Sweep:
        moments = problem.moments_by(sharing)
        dead = np.flatnonzero(np.diagonal(moments.G) <= 0)
        rows = TrainingRows(problem, moments.mean_x, moments.mean_y, dead)
        return cls(rows, _Form.direct(features, moments.G, moments.C), features, weights, sharing, sums, visit)

    def run(self, members: Indices) -> Indices:
        """Add these members to the sums; those that are not to be trusted are left over."""
        left_over = []
        for form, part in self._forms(members):
            step = self._batch_size(form, part)
            groups = self._groups(form, part, step)
            for group in groups:
                batches = self._batches(form, group, step)
                left_over.append(np.setdiff1d(group, np.concatenate([batch.members for batch in batches])))
                self._add_members(form, batches)
                blocks = self.rows.blocks()
                work = self._on_blocks(form, batches, blocks)
                self.sharing.quiet()(work, len(blocks), chunk=1)
        return np.concatenate(left_over)

    def _forms(self, members: Indices) -> list[tuple[_Form, Indices]]:
        """Members in the form that is less work, largest together: a batch fills up to its largest."""
        n, p = self.rows.problem.shape
        sizes = self.features.sizes[members]
        members = members[np.argsort(-sizes, kind="stable")]
        sizes = self.features.sizes[members]
        large = sizes > p - sizes
        saved = 2.0 * n * np.sum(sizes[large] ** 2.0 - (p - sizes[large]) ** 2.0)
        form = self.form.complement() if saved > 3.0 * p**3 + 4.0 * n * p**2 else None
        if form is None:
            return [(self.form, members)]
        return [(f, m) for f, m in ((form, members[large][::-1]), (self.form, members[~large])) if len(m)]

    def _batch_size(self, form: _Form, members: Indices) -> int:
        """Members in a batch; those given are in falling order of size."""
        largest, rows = max(1, int(form.subsets.sizes[members[0]])), self.rows.blocks()[0].stop
        return max(1, BATCH_BYTES // int(8 * largest * rows))

    def _groups(self, form: _Form, members: Indices, step: int) -> list[Indices]:
        """Members whose inverses are kept at a time, whole batches of them."""
        size = 8.0 * max(1, int(form.subsets.sizes[members[0]])) ** 2
        count = step * max(1, int(GROUP_BYTES / size) // step)
        return [members[start : start + count] for start in range(0, len(members), count)]

    def _batches(self, form: _Form, members: Indices, step: int) -> list[_Batch]:
        def work(start: int, stop: int) -> list[_Batch]:
            return [self._batch(form, members[step * i : step * (i + 1)]) for i in range(start, stop)]

        found = self.sharing.quiet()(work, -(-len(members) // step))
        return [batch for part in found for batch in part]

    def _batch(self, form: _Form, members: Indices) -> _Batch:
        subsets, filler = form.subsets, self.features.n_items
        sizes, starts = subsets.sizes[members, None], subsets.indptr[members, None]
        place = np.arange(sizes.max())
        columns = np.where(place < sizes, subsets.indices.take(starts + place, mode="clip"), filler)
        P, inflation = inverses(form.G[columns[:, :, None], columns[:, None, :]])
        inflation = inflation * form.inflation
        solver = np.concatenate([P, (P @ form.C[columns]).transpose(0, 2, 1)], axis=1)
        batch = _Batch(members, self.weights[members], columns, solver, doubtful_below(inflation))
        trusted = (inflation < LARGEST_INFLATION) & keeps_all_directions(self.rows.problem, filler, inflation)
        return batch if trusted.all() else batch.take(trusted)

    def _add_members(self, form: _Form, batches: list[_Batch]) -> None:
        """Coefficients, intercepts, and what else does not take the rows."""
        p, q = self.sums.coef.shape
        coef, weight = np.zeros((p, q)), 0.0
        for batch in batches:
            for t in range(q):
                own = batch.weights[:, None] * batch.coef[:, t]
                coef[:, t] += np.bincount(batch.columns.ravel(), weights=own.ravel(), minlength=p + 1)[:-1]
            weight += float(batch.weights.sum())
        if form.whole is not None:
            P, solution = form.whole
            coef = weight * solution - P @ coef
        self.sums.coef[:] += coef
        self.sums.intercept[:] += weight * self.rows.mean_y - self.rows.mean_x @ coef
        share, centred = self.rows.share[:, None], self.rows.problem.Y - self.rows.mean_y
        change = share / (1 - share) * centred
        self.sums.mean_change[:] += weight * change
        self.sums.mean_y[:] += weight * (self.rows.mean_y - change)
        if self.sums.operator is not None:
            self.sums.operator.M[:] += self._inverse_sum(form, batches, weight)
            self.sums.operator.centre[:] += weight * self.rows.share

    def _inverse_sum(self, form: _Form, batches: list[_Batch], weight: float) -> Array:
        """Sum over members of their inverses, zero outside their columns, (p, p)."""
        p = self.features.n_items

        def work(start: int, stop: int) -> Array:
            total = np.zeros((p + 1, p + 1))
            for batch in batches[start:stop]:
                wide = np.zeros((*batch.solver.shape[:2], p + 1))
                own, columns = batch.inverse * batch.weights[:, None, None], batch.columns[:, None, :]
                np.put_along_axis(wide[:, : columns.shape[2]], np.broadcast_to(columns, own.shape), own, axis=2)
                total += batch.adder(p) @ wide.reshape(-1, p + 1)
            return total[:-1, :-1]

        parts = self.sharing.quiet()(work, len(batches), chunk=max(1, -(-len(batches) // 8)))
        total = np.zeros((p, p))
        for part in parts:
            total += part
        if form.whole is None:
            return total
        P = form.whole[0]
        return weight * P - P @ total @ P

    def _on_blocks(self, form: _Form, batches: list[_Batch], blocks: list[slice]) -> Callable[[int, int], None]:
        p = self.features.n_items
        adders = [batch.adder(p) for batch in batches] if self.visit is not None else []

        def work(start: int, stop: int) -> None:
            for rows in blocks[start:stop]:
                block = _Block.of(self.rows, form, rows)
                total, change = self._on_block(block, batches, adders)
                self.sums.residual[rows] += total.T
                self.sums.moved[rows] += (self.rows.share[rows] * total).T
                if self.visit is not None:
                    self.visit(np.arange(p), rows, block.in_all_columns(change[:, :-1], total))

        return work

    def _on_block(self, block: _Block, batches: list[_Batch], adders: list[sp.csc_array]) -> tuple[Array, Array]:
        """Sums over members of residuals without each of these rows, (q, rows), and of changes, (q, p + 1, rows)."""
        q, size = block.target.shape
        total, change = np.zeros((q, size)), np.zeros((q, self.features.n_items + 1, size if adders else 0))
        for number, batch in enumerate(batches):
            residual, D = block.residuals(batch, self.features)
            residual *= batch.weights[:, None, None]
            total += residual.sum(axis=0)
            if adders:
                for t in range(q):
                    own = np.multiply(D, (residual[:, t] * block.weight)[:, None, :], out=D if t == q - 1 else None)
                    change[t] += adders[number] @ own.reshape(-1, size)
        return total, change


@dataclass(frozen=True)
class _Block:
    """Some rows, and what members in one form do there."""

    rows: TrainingRows
    form: _Form
    here: slice
    x: Array  # (p + 1, rows) columns about their means
    data: Array  # (p + 1, rows) these, or the inverse of the whole Gram matrix times these in the complement form
    target: Array  # (q, rows) about the mean
    weight: Array  # (rows,)

    @classmethod
    def of(cls, rows: TrainingRows, form: _Form, here: slice) -> _Block:
        x = rows.block(here)
        data = x if form.whole is None else form.G @ x
        target = (rows.problem.Y[here] - rows.mean_y).T
        return cls(rows, form, here, x, data, target, rows.weight[here])

    @cached_property
    def _whole(self) -> tuple[Array, Array]:
        """Leverages (rows,), without weight, and fitted values (q, rows) of the fit on all columns."""
        assert self.form.whole is not None
        return np.einsum("jl,jl->l", self.x, self.data), self.form.whole[1].T @ self.x[:-1]

    def residuals(self, batch: _Batch, features: Subsets) -> tuple[Array, Array]:
        """Residuals of members without each row, (b, q, rows), and their solvers times data, (b, m + q, rows)."""
        A = np.take(self.data, batch.columns, axis=0)
        D, m = batch.solver @ A, A.shape[1]
        leverage, fitted = np.einsum("bjl,bjl->bl", A, D[:, :m]), D[:, m:]
        if self.form.whole is not None:
            leverage, fitted = self._whole[0] - leverage, self._whole[1] - fitted
        left = 1 - self.rows.share[self.here] - self.weight * leverage
        close = left <= batch.doubt[:, None]
        residual = self.target - fitted
        if not close.any():
            residual /= left[:, None, :]
            return residual, D
        residual /= np.where(close, 1.0, left)[:, None, :]
        self._mend(residual, D, batch, np.nonzero(close), features)
        return residual, D

    def in_all_columns(self, change: Array, total: Array) -> Array:
        """Changes of coefficients, (q, p, rows), from the sums over D, and those of the residuals, (q, rows)."""
        if self.form.whole is None:
            return change
        return self.data[:-1] * (self.weight * total)[:, None, :] - self.form.whole[0] @ change

    def _mend(self, residual: Array, D: Array, batch: _Batch, where: tuple[Indices, ...], features: Subsets) -> None:
        """Residuals of rows that members fit too closely for rounding."""
        members, rows = where
        p, q = len(self.x) - 1, residual.shape[1]
        direction, coef = np.zeros((len(members), p + 1)), np.zeros((len(members), q, p + 1))
        for number, (i, l) in enumerate(zip(members, rows, strict=True)):
            own = batch.columns[i]  # fillers all write a zero to the same place
            direction[number, own], coef[number][:, own] = D[i, : len(own), l], batch.coef[i]
        direction, coef = direction[:, :-1], coef[:, :, :-1]
        if self.form.whole is not None:
            P, solution = self.form.whole
            direction, coef = self.data[:-1, rows].T - direction @ P, solution.T - coef @ P
        alone = self._costs_a_rank(direction, rows)
        again: dict[int, Array] = {}
        for number, (i, l) in enumerate(zip(members, rows, strict=True)):
            if alone[number]:  # Greville
                d = direction[number]
                residual[i, :, l] = (coef[number] @ d) / (self.weight[l] * (d @ d))
                continue
            member = int(batch.members[i])
            if member not in again:
                again[member] = delete_each_row(self.rows.problem, features[member], None).residual
            residual[i, :, l] = again[member][self.here.start + l]

    def _costs_a_rank(self, direction: Array, rows: Indices) -> list[bool]:
        """Whether deleting rows costs members a rank, from the rows of their hat matrices beside the diagonal."""
        beside, number = np.zeros(len(rows)), self.here.start + rows
        root, share = np.sqrt(self.rows.weight), np.sqrt(self.rows.share)
        for block in self.rows.blocks():
            hat = direction @ self.rows.block(block)[:-1] * root[block] * root[number][:, None]
            hat += share[block] * share[number][:, None]
            own = (number >= block.start) & (number < block.stop)
            hat[own, number[own] - block.start] = 0.0
            beside += np.einsum("il,il->i", hat, hat)
        return [costs_a_rank(float(one), len(root)) for one in beside]


def _add_one_by_one(
    rows: TrainingRows,
    features: Subsets,
    samples: Subsets | None,
    weights: Array,
    members: Indices,
    sharing: Sharing,
    sums: Deleted,
    visit: Visit | None,
) -> Deleted:
    """Add members that are deleted from on their own, a few at a time, in their order."""
    if not len(members):
        return sums
    n, sizes = len(rows.weight), features.sizes[members]
    if sums.operator is not None:
        memory.require(
            8.0 * features.n_items * n,
            f"The derivative of {features.n_items} coefficients with respect to {n} targets",
            "Standard errors need it for members on some of the rows, dependent columns or more columns than rows; "
            "predict_interval(method='jackknife') does not.",
        )
        sums = replace(sums, operator=replace(sums.operator, F=np.zeros((features.n_items, n))))
    entries = sizes * (n if samples is None else samples.sizes[members])
    each = 32.0 * max(1.0, float(entries.max()))
    memory.require(each, f"Deleting rows from a member of {sizes.max()} columns", "Use fewer columns or rows a member.")

    def work(start: int, stop: int) -> list[MemberDeletion]:
        return [
            delete_each_row(rows.problem, features[i], None if samples is None else samples[i]) for i in few[start:stop]
        ]

    step = int(np.clip(min(4 * GROUP_BYTES, memory.available_bytes() / 4) / each, 1, 16 * sharing.n_threads))
    for start in range(0, len(members), step):
        few = members[start : start + step]
        found = [one for part in sharing.quiet()(work, len(few), chunk=1) for one in part]
        for i, one in zip(few, found, strict=True):
            _add(rows, features[i], one, float(weights[i]), sums, visit)
    return sums


def _add(
    rows: TrainingRows, columns: Indices, one: MemberDeletion, weight: float, sums: Deleted, visit: Visit | None
) -> None:
    """Add one member to the sums."""
    targets = range(len(one.intercept))
    away = one.mean_x - rows.mean_x[columns]  # zero where it was given all rows
    sums.coef[columns] += weight * one.coef
    sums.intercept[:] += weight * one.intercept
    sums.residual[:] += weight * one.residual
    sums.mean_y[:] += weight * one.mean_y
    sums.mean_change[:] += weight * (one.mean_all - one.mean_y)
    sums.moved[one.rows] += weight * one.share[:, None] * one.residual[one.rows]
    if away.any():
        sums.moved[one.rows] -= weight * np.stack([away @ one.coef_change(t) for t in targets], axis=1)
    if visit is not None:
        visit(columns, one.rows, weight * np.stack([one.coef_change(t) for t in targets]))
    if sums.operator is not None:
        assert sums.operator.F is not None
        sums.operator.F[np.ix_(columns, one.rows)] += weight * one.pinv
        sums.operator.centre[one.rows] += weight * one.share
        sums.operator.moved[one.rows] -= weight * (away @ one.pinv)
