r"""Leave-one-out of all members: its sums over an ensemble, without a refit for every row.

**Members on all rows.** With centred rows :math:`a_l`, weights in the mean :math:`s_l = w_l / \sum
w` (zero without an intercept) and :math:`P_i = G_{SS}^{-1}`, zero outside the columns of member i,

.. math:: e_{il} = \frac{y_l - \bar y - a_l' b_i}{1 - s_l - w_l a_l' P_i a_l} , \qquad
          b_i - b_{i,-l} = w_l P_i a_l e_{il}

so a block of rows and a batch of members of one size need one stacked product :math:`P_i A`:
:math:`2 m^2` flops a row and member, and nothing larger than a batch is stored. Threads divide the
rows among themselves, so sums over members do not depend on the number of threads. For members of
most columns, with P the inverse of the Gram matrix of all columns, C the columns outside the member
and :math:`g_l = P a_l`, :math:`P_i a_l = g_l - P_{:C} P_{CC}^{-1} g_{l,C}`: a product of size p - m
(complement form). Four cases are deleted from one member at a time (``deletion``): rows that a
member fits too closely, members on a sample of the rows, members of more columns than rows, and
members whose inverse is not trusted.

**Infinitely many determinantal members** are ridge regression with the mean inverse :math:`M = (G +
\lambda D^{-1})^{-1}` (``subsets.Determinantal``) in place of :math:`P_i`. Status: exact for a fixed
penalty; the change of the penalty that an expected size implies when row l is deleted is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._data.rows import RowData
from .._execution import memory
from .._execution.threads import Threads
from .._trust import LARGEST_INFLATION
from ..subsets import Determinantal, Subsets
from .cholesky import inverse, ones_for_constants
from .deletion import (
    MemberDeletion,
    TrainingRows,
    delete_each_row,
    doubtful_below,
    inverses,
    mean_changes,
)

__all__ = ["Deleted", "TrainingRows", "delete_each_row", "delete_rows", "delete_rows_of_limit"]
__all__ += ["inverses"]  # of deletion.py, as are TrainingRows and delete_each_row

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# Called with columns, rows and weighted coefficient changes (q, columns, rows), summed over some of
# the members. The same rows may come several times, but two threads never call at once.
Visit = Callable[[Indices, Any, NDArray[np.float64]], None]

BATCH_BYTES = 3 << 17  # a batch of members applied to a block of rows: it stays in a core's cache
GROUP_BYTES = 1 << 26  # inverses stored at a time


class _Operator:
    """Derivative of the ensemble with respect to the targets.

    The derivative of the coefficients is :math:`M A' W + F`, with centred rows A. The derivative of
    the prediction at the means is `centre` plus the scale times `moved`.
    """

    def __init__(self, n: int, p: int) -> None:
        self.M = np.zeros((p, p))
        self.F: Array | None = None  # (p, n), of members whose inverse is not in M; None: zero
        self.centre = np.zeros(n)  # weight of each row in the mean, without the scale
        self.moved = np.zeros(n)  # what the scale applies to

    def add_member(
        self, columns: Indices, member: MemberDeletion, weight: float, mean_shift: Array
    ) -> None:
        """Add a member whose inverse is not in M."""
        if self.F is None:
            self.F = np.zeros((len(self.M), len(self.centre)))
        self.F[np.ix_(columns, member.rows)] += weight * member.pinv
        self.centre[member.rows] += weight * member.mean_weights
        self.moved[member.rows] -= weight * (mean_shift @ member.pinv)


class Deleted:
    """Weighted sums over members of what deleting each row changes; the scale is not applied."""

    def __init__(self, rows: TrainingRows, visit: Visit | None, operator: bool) -> None:
        n, p = rows.problem.shape
        q = rows.problem.Y.shape[1]
        self.rows = rows
        self.visit = visit
        self.operator = _Operator(n, p) if operator else None
        self.coef = np.zeros((p, q))
        self.intercept = np.zeros(q)
        self.residual = np.zeros((n, q))  # y_l minus the prediction for row l without row l
        self.mean_y = np.zeros((n, q))  # mean target without row l
        self.mean_change = np.zeros((n, q))  # mean target minus the mean target without row l
        self.moved = np.zeros((n, q))  # change by row l of the prediction at the means of all rows

    def add_shared(self, coef: Array, weight: float) -> None:
        """Add coefficients and means of members on all rows, with their total weight."""
        mean_x, mean_y = self.rows.problem.means
        change = mean_changes(self.rows.problem.Y, mean_y, self.rows.mean_weights)
        self.coef += coef
        self.intercept += weight * mean_y - mean_x @ coef
        self.mean_change += weight * change
        self.mean_y += weight * (mean_y - change)
        if self.operator is not None:
            self.operator.centre += weight * self.rows.mean_weights

    def add_residuals(self, block: Any, residual: Array, change: Array | None) -> None:
        """Add residuals (rows, q) of members on all rows for a block, and changes of all
        coefficients (q, p, rows).
        """
        self.residual[block] += residual
        self.moved[block] += self.rows.mean_weights[block, None] * residual
        if self.visit is not None and change is not None:
            self.visit(np.arange(len(self.coef)), block, change)

    def add_member(self, columns: Indices, member: MemberDeletion, weight: float) -> None:
        """Add a member with separate rows, means or inverse."""
        rows = member.rows
        mean_shift = member.mean_x - self.rows.problem.means[0][columns]  # zero on all rows
        self.coef[columns] += weight * member.coef
        self.intercept += weight * member.intercept
        self.residual += weight * member.residual
        self.mean_y += weight * member.mean_y
        self.mean_y[rows] -= weight * member.mean_change
        self.mean_change[rows] += weight * member.mean_change
        self.moved[rows] += weight * member.mean_weights[:, None] * member.residual[rows]
        if mean_shift.any():
            self.moved[rows] -= weight * (mean_shift @ member.coef_change()).T
        if self.visit is not None:
            self.visit(columns, rows, weight * member.coef_change())
        if self.operator is not None:
            self.operator.add_member(columns, member, weight, mean_shift)


@dataclass(frozen=True)
class _Ensemble:
    """Members whose rows are deleted."""

    problem: RowData
    features: Subsets
    samples: Subsets | None
    weights: Array
    threads: Threads

    def delete(self, i: int) -> MemberDeletion:
        """Leave-one-out of one member."""
        rows = None if self.samples is None else self.samples[i]
        return delete_each_row(self.problem, self.features[i], rows)


def delete_rows(
    problem: RowData,
    features: Subsets,
    samples: Subsets | None,
    weights: Array,
    threads: Threads,
    *,
    visit: Visit | None = None,
    operator: bool = False,
) -> tuple[Deleted, TrainingRows]:
    """Sum over members; `visit` receives the changes of coefficients, which may not fit into memory
    at once.
    """
    members = np.flatnonzero(weights)
    ensemble = _Ensemble(problem, features, samples, weights, threads.quiet())
    tall = members[:0]
    if samples is None:
        tall = members[features.sizes[members] < problem.shape[0] - problem.null_rank]
    if len(tall) and _gram_pays(problem, features.sizes[tall]):
        G = problem.moments_by(threads).G
        sums = Deleted(TrainingRows(problem, np.flatnonzero(np.diagonal(G) <= 0)), visit, operator)
        added = _add_batches(ensemble, _form(problem, features, tall), tall, sums)
        members = np.setdiff1d(members, added)
    else:  # no Gram matrix is made: members centre their columns themselves
        sums = Deleted(TrainingRows(problem), visit, operator)
    if len(members):
        _add_one_by_one(ensemble, members, sums)
    return sums, sums.rows


def _gram_pays(problem: RowData, sizes: Indices) -> bool:
    """Whether one Gram matrix of all columns is less work than one for each member, or saves copies
    of many rows.
    """
    n, p = problem.shape
    saves_copies = p <= n and 32.0 * n * float(sizes.max()) > GROUP_BYTES
    return saves_copies or float(p) ** 2 <= 2 * float(np.sum(sizes.astype(float) ** 2))


@dataclass(frozen=True)
class _Form:
    """Principal submatrices to invert: of the Gram matrix, or of its inverse for the columns
    outside a member (complement form).
    """

    subsets: Subsets  # columns of the submatrices: the members' columns, or the complements
    M: Array  # (p, p) Gram matrix, or its inverse
    C: Array  # (p, q) right-hand sides, or the solution of all columns
    complement: bool = False
    inflation: float = 1.0  # of all columns, in the complement form


def _form(problem: RowData, features: Subsets, members: Indices) -> _Form:
    """Form that takes less work for all members together."""
    n, p = problem.shape
    G = problem.moments.G
    C = problem.moments.C
    sizes = features.sizes[members]
    saved_flops = 2.0 * n * np.sum(sizes**2.0 - (p - sizes) ** 2.0)
    if saved_flops > 3.0 * p**3 + 4.0 * n * p**2:
        P, inflation = inverse(ones_for_constants(G))
        if inflation < LARGEST_INFLATION**0.5:  # the form multiplies by the inverse once more
            return _Form(features.complement(), P, P @ C, complement=True, inflation=inflation)
    return _Form(features, G, C)


@dataclass(frozen=True)
class _Batch:
    """Members of one size with their inverses."""

    members: Indices  # (b,)
    weights: Array  # (b,) of the members in the ensemble
    columns: Indices  # (b, m)
    inverse: Array  # (b, m, m)
    coef: Array  # (b, q, m)
    doubt: Array  # (b, 1) smallest 1 - h for which the residual of a row is trusted
    adder: sp.csc_array  # (p, b m) sums the members' entries by column

    @classmethod
    def inverted(cls, form: _Form, weights: Array, members: Indices) -> _Batch:
        """Invert the submatrices of members, and drop members whose inverse is not trusted."""
        size = form.subsets.sizes[members[0]]
        starts = form.subsets.indptr[members]
        columns = form.subsets.indices[starts[:, None] + np.arange(size)]
        P, inflation = inverses(form.M[columns[:, :, None], columns[:, None, :]])
        inflation *= form.inflation
        trusted = inflation < LARGEST_INFLATION
        columns = columns[trusted]
        P = P[trusted]
        entries = (np.ones(columns.size), columns.ravel(), np.arange(columns.size + 1))
        return cls(
            members=members[trusted],
            weights=weights[members[trusted]],
            columns=columns,
            inverse=P,
            coef=(P @ form.C[columns]).transpose(0, 2, 1),
            doubt=doubtful_below(inflation[trusted])[:, None],
            adder=sp.csc_array(entries, shape=(len(form.M), columns.size)),
        )


def _add_batches(ensemble: _Ensemble, form: _Form, members: Indices, sums: Deleted) -> Indices:
    """Add members on all rows from one Gram matrix, and return the members whose inverse was
    trusted.
    """
    added = [members[:0]]
    for group in _groups(form.subsets.sizes, members, sums.rows.blocks()[0].stop):

        def invert(i: int, _: int, group: list[Indices] = group) -> _Batch:
            return _Batch.inverted(form, ensemble.weights, group[i])

        batches = ensemble.threads(invert, len(group), chunk=1)
        _add_members(form, batches, sums)
        _add_rows(ensemble, form, batches, sums)
        added += [batch.members for batch in batches]
    return np.concatenate(added)


def _groups(sizes: Indices, members: Indices, block_rows: int) -> Iterator[list[Indices]]:
    """Batches of members of one size, in groups whose inverses are stored at a time."""
    batches: list[Indices] = []
    group_bytes = 0
    for size in np.unique(sizes[members]):
        equal_size = members[sizes[members] == size]
        step = max(1, int(BATCH_BYTES // (8 * max(1, size) * block_rows)))
        for first in range(0, len(equal_size), step):
            batches.append(equal_size[first : first + step])
            group_bytes += 8 * len(batches[-1]) * int(size) ** 2
            if group_bytes >= GROUP_BYTES:
                yield batches
                batches = []
                group_bytes = 0
    if batches:
        yield batches


def _add_members(form: _Form, batches: list[_Batch], sums: Deleted) -> None:
    """Add what needs no rows: coefficients, intercepts, means and the mean inverse."""
    coef = np.zeros(form.C.shape)
    M = np.zeros(form.M.shape)
    total_weight = sum(float(batch.weights.sum()) for batch in batches)
    for batch in batches:
        members = zip(batch.weights, batch.columns, batch.inverse, batch.coef, strict=True)
        for weight, columns, P, b in members:
            coef[columns] += weight * b.T
            if sums.operator is not None:
                M[np.ix_(columns, columns)] += weight * P
    if form.complement:
        coef = total_weight * form.C - form.M @ coef
    sums.add_shared(coef, total_weight)
    if sums.operator is not None:
        sums.operator.M += total_weight * form.M - form.M @ M @ form.M if form.complement else M


def _add_rows(ensemble: _Ensemble, form: _Form, batches: list[_Batch], sums: Deleted) -> None:
    """Add residuals and changes of all rows; threads divide the blocks of rows among themselves."""
    blocks = sums.rows.blocks()
    close_fits: list[tuple[Indices, Indices]] = []
    ensemble.threads(
        lambda i, _: _on_block(form, batches, blocks[i], sums, close_fits), len(blocks), chunk=1
    )
    _add_close_rows(ensemble, close_fits, sums)


def _on_block(
    form: _Form,
    batches: list[_Batch],
    block: slice,
    sums: Deleted,
    close_fits: list[tuple[Indices, Indices]],
) -> None:
    """Add residuals without each row of a block, and changes of the coefficients, of all batches.

    A row that a member fits too closely adds zero here; the pair is appended to `close_fits`, as
    members and rows.
    """
    problem = sums.rows.problem
    weight = 1.0 if problem.weight is None else problem.weight[block]
    centred_y = (problem.Y[block] - problem.means[1]).T
    a = sums.rows.block(block)
    g = form.M @ a if form.complement else a
    sign = -1.0 if form.complement else 1.0
    leverage_of_all = np.einsum("jl,jl->l", a, g) if form.complement else 0.0
    fit_of_all = form.C.T @ a if form.complement else 0.0
    total = np.zeros(centred_y.shape)
    change = None if sums.visit is None else np.zeros((len(total), *a.shape))
    for batch in batches:
        A = np.take(g, batch.columns, axis=0)
        D = batch.inverse @ A
        leverage = leverage_of_all + sign * np.einsum("bjl,bjl->bl", A, D)
        remainder = 1 - sums.rows.mean_weights[block] - weight * leverage
        doubtful = remainder <= batch.doubt
        if doubtful.any():
            remainder[doubtful] = np.inf
            doubtful_members, doubtful_rows = np.nonzero(doubtful)
            close_fits.append((batch.members[doubtful_members], block.start + doubtful_rows))
        residual = (centred_y - fit_of_all - sign * (batch.coef @ A)) / remainder[:, None]
        residual *= batch.weights[:, None, None]
        total += residual.sum(axis=0)
        if change is not None:
            for t in range(len(total)):
                member_change = D * (weight * residual[:, t])[:, None]
                change[t] += batch.adder @ member_change.reshape(-1, a.shape[1])
    if change is not None and form.complement:
        change = g * (weight * total)[:, None] - form.M @ change
    sums.add_residuals(block, total.T, change)


def _add_close_rows(
    ensemble: _Ensemble, close_fits: list[tuple[Indices, Indices]], sums: Deleted
) -> None:
    """Add residuals and changes for rows that members fit too closely for the batched inverse."""
    if not close_fits:
        return
    members, close_rows = (np.concatenate(parts) for parts in zip(*close_fits, strict=True))
    for i in np.unique(members):
        weight = ensemble.weights[i]
        member = ensemble.delete(i)
        rows = np.sort(close_rows[members == i])
        change = None
        if sums.visit is not None:
            change = np.zeros((sums.coef.shape[1], len(sums.coef), len(rows)))
            change[:, ensemble.features[i]] = weight * member.coef_change()[:, :, rows]
        sums.add_residuals(rows, weight * member.residual[rows], change)


def _add_one_by_one(ensemble: _Ensemble, members: Indices, sums: Deleted) -> None:
    """Add members that need separate factorisations, a few at a time, in their order."""
    n, p = ensemble.problem.shape
    if sums.operator is not None:
        memory.require(
            8.0 * p * n,
            f"The derivative of {p} coefficients with respect to {n} targets",
            "Standard errors need it for members on some of the rows, dependent columns or more"
            " columns than rows; predict_interval(method='jackknife') does not.",
        )
    sizes = ensemble.features.sizes[members]
    n_rows = n if ensemble.samples is None else ensemble.samples.sizes[members]
    member_bytes = 32.0 * max(1.0, float(np.max(sizes * n_rows)))
    memory.require(
        member_bytes,
        f"Deleting rows from a member of {sizes.max()} columns",
        "Use fewer columns or rows a member.",
    )
    room = min(4 * GROUP_BYTES, memory.available_bytes() / 4)
    step = int(np.clip(room / member_bytes, 1, 16 * ensemble.threads.n_threads))
    for first in range(0, len(members), step):
        group = members[first : first + step]

        def delete(i: int, _: int, group: Indices = group) -> MemberDeletion:
            return ensemble.delete(group[i])

        deletions = ensemble.threads(delete, len(group), chunk=1)
        for i, member in zip(group, deletions, strict=True):
            sums.add_member(ensemble.features[i], member, float(ensemble.weights[i]))


def delete_rows_of_limit(
    problem: RowData, process: Determinantal, *, visit: Visit | None = None, operator: bool = False
) -> tuple[Deleted, TrainingRows]:
    """Sums of :func:`delete_rows` for infinitely many determinantal members."""
    rows = TrainingRows(problem, np.flatnonzero(process.prior_variances == 0))
    sums = Deleted(rows, visit, operator)
    root_prior_variances = np.sqrt(process.prior_variances)[:, None]
    half = (
        root_prior_variances * process.vectors / np.sqrt(process.values + process.penalty)
    )  # M = hh'
    weight = problem.weights
    Y = problem.Y - problem.means[1]
    coef = np.zeros(sums.coef.shape)
    for block in rows.blocks():
        coef += half @ ((half.T @ rows.block(block)) @ (weight[block, None] * Y[block]))
    sums.add_shared(coef, 1.0)
    if sums.operator is not None:
        sums.operator.M += half @ half.T
    for block in rows.blocks():
        x = rows.block(block)
        inner = half.T @ x  # (rank, rows)
        remainder = 1 - rows.mean_weights[block] - weight[block] * np.sum(inner**2, axis=0)
        residual = (Y[block] - x.T @ coef) / remainder[:, None]
        change = None if visit is None else weight[block] * (half @ inner) * residual.T[:, None]
        sums.add_residuals(block, residual, change)
    return sums, rows
