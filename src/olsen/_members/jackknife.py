r"""Leave-one-out of members, and its sums over an ensemble, without a refit for every row.

**One member.** With (centred, sqrt-weighted) submatrix A, targets B and :math:`Z = A^{+}`, deleting
row l gives

.. math:: b_{-l} = b - Z_{:,l}\, e_l , \qquad
          e_l = \frac{r_l}{1 - h_l} \;\text{if } h_l < 1, \qquad
          e_l = \frac{Z_{:,l}' b}{Z_{:,l}' Z_{:,l}} \;\text{if } h_l = 1

with residual r and leverage :math:`h_l = (A Z)_{ll} + w_l / \sum w` (the last term only with an
intercept). The second case (Greville) is a row that is fitted exactly, as all rows of a
minimum-norm member are. Status: exact. Rows outside the member's sample have :math:`e_l = y_l -
\hat y_l`, and deleting such a row changes nothing. Z comes from the inverse of the smaller Gram
matrix, A'A or AA', where that inverse is trusted, and from a QR or SVD of the data otherwise.

**Members on all rows.** With centred rows :math:`a_l`, weights in the mean :math:`s_l = w_l / \sum
w` (zero without an intercept) and :math:`P_i = G_{SS}^{-1}`, zero outside the columns of member i,

.. math:: e_{il} = \frac{y_l - \bar y - a_l' b_i}{1 - s_l - w_l a_l' P_i a_l} , \qquad
          b_i - b_{i,-l} = w_l P_i a_l e_{il}

so a block of rows and a batch of members of one size need one stacked product :math:`P_i A`:
:math:`2 m^2` flops a row and member, and nothing larger than a batch is stored. Threads divide the
rows among themselves, so sums over members do not depend on the number of threads. For members of
most columns, with P the inverse of the Gram matrix of all columns, C the columns outside the member
and :math:`g_l = P a_l`, :math:`P_i a_l = g_l - P_{:C} P_{CC}^{-1} g_{l,C}`: a product of size p - m
(complement form). Four cases are deleted from one member at a time: rows that a member fits too
closely, members on a sample of the rows, members of more columns than rows, and members whose
inverse is not trusted.

**Infinitely many determinantal members** are ridge regression with the mean inverse :math:`M = (G +
\lambda D^{-1})^{-1}` (``subsets.Determinantal``) in place of :math:`P_i`. Status: exact for a fixed
penalty; the change of the penalty that an expected size implies when row l is deleted is ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._data.rows import RowData, Submatrix, gather
from .._execution import memory
from .._execution.threads import Threads, cached_property
from .._trust import EPS, EXACT_FIT, LARGEST_INFLATION, costs_a_rank, nothing_but_rounding
from ..subsets import Determinantal, Subsets
from .orthogonal import basis_and_inverse, least_squares

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# Called with columns, rows and weighted coefficient changes (q, columns, rows), summed over some of
# the members. The same rows may come several times, but two threads never call at once.
Visit = Callable[[Indices, Any, NDArray[np.float64]], None]

BLOCK_BYTES = (
    1 << 18
)  # a block of rows: it stays in the cache of a core while members are applied to it
BATCH_BYTES = 3 << 17  # a batch of members applied to one block: it stays in that cache too
GROUP_BYTES = 1 << 26  # inverses stored at a time


@dataclass(frozen=True)
class _MemberDeletion:
    """Leave-one-out of one member; row indices refer to all rows of the problem."""

    rows: NDArray[np.int64]  # (tau,) the member's rows
    coef: NDArray[np.float64]  # (m, q)
    intercept: NDArray[np.float64]  # (q,)
    residual: NDArray[np.float64]  # (n, q) y_l minus the prediction for row l without row l
    mean_x: NDArray[np.float64]  # (m,) mean of the member's rows; zeros without intercept
    mean_all: NDArray[np.float64]  # (q,) mean of the member's targets
    mean_y: NDArray[np.float64]  # (n, q) mean of the member's targets without row l
    mean_weights: NDArray[np.float64]  # (tau,) weight of each of the member's rows in its means
    pinv: NDArray[np.float64]  # (m, tau) derivative of the coefficients with respect to the targets
    refits: dict[
        int, NDArray[np.float64]
    ]  # (m, q) changes of the coefficients for rows that needed a refit

    def coef_change(self) -> NDArray[np.float64]:
        """Coefficients minus those without row l, (q, m, tau)."""
        change: Array = self.pinv * self.residual[self.rows].T[:, None, :]
        for l, refit_change in self.refits.items():
            change[:, :, l] = refit_change.T
        return change


class _Inverse(NamedTuple):
    """Pseudo-inverse Z (m, tau), and the hat matrix A Z as a product of two matrices."""

    Z: Array
    hat_left: Array  # (tau, r)
    hat_right: Array  # (r, tau)
    doubt: float  # smallest 1 - h for which the residual of a row is trusted
    # all rows are fitted exactly; 1 - h is then pure rounding, which grows with the offset
    interpolates: bool


def delete_each_row(problem: RowData, columns: Indices, rows: Indices | None) -> _MemberDeletion:
    """Leave-one-out of one member by the formulas of this module."""
    n = len(problem.Y)
    part = problem.submatrix(columns, rows)
    member_rows = np.arange(n) if rows is None else rows
    mean_weights = np.zeros(len(member_rows))
    if problem.fit_intercept:
        mean_weights = part.root**2 / (part.root @ part.root)
    Z, deleted_residuals, refit_rows = _inverse_and_residuals(problem, part, columns, mean_weights)
    coef = Z @ part.B
    intercept = part.intercept(coef)
    residual = problem.Y - np.asarray(problem.X[:, columns] @ coef, dtype=np.float64) - intercept
    residual[member_rows] = deleted_residuals / part.root[:, None]
    refits = {}
    for l in refit_rows.tolist():
        row = member_rows[l]
        training = problem.submatrix(columns, np.delete(member_rows, l))
        refit_coef = least_squares(training.A, training.B, problem.cutoff(training, columns))
        x = gather(problem.X, columns, member_rows[l : l + 1])[0]
        predicted = x @ refit_coef + training.intercept(refit_coef)
        residual[row] = problem.Y[row] - predicted
        refits[l] = coef - refit_coef
    mean_y = np.tile(part.mean_y, (n, 1))
    mean_y[member_rows] = (part.mean_y - mean_weights[:, None] * problem.Y[member_rows]) / (
        1 - mean_weights
    )[:, None]
    return _MemberDeletion(
        rows=member_rows,
        coef=coef,
        intercept=intercept,
        residual=residual,
        mean_x=part.mean_x,
        mean_all=part.mean_y,
        mean_y=mean_y,
        mean_weights=mean_weights,
        pinv=Z * part.root,  # with respect to raw targets: rows of A and B are sqrt-weighted
        refits=refits,
    )


def _inverse_and_residuals(
    problem: RowData, part: Submatrix, columns: Indices, mean_weights: Array
) -> tuple[Array, Array, Indices]:
    """Pseudo-inverse, and :func:`_residuals`; from the Gram matrix unless a row needs more, else
    from the data.
    """
    inverse = _from_gram(problem, part, mean_weights)
    if inverse is not None:
        residuals, refit_rows = _residuals(part, mean_weights, inverse)
        if not len(refit_rows):
            return inverse.Z, residuals, refit_rows
    freedom = len(part.A) - problem.fit_intercept
    Q, Z = basis_and_inverse(part.A, problem.cutoff(part, columns), freedom)  # by QR or SVD
    inverse = _Inverse(
        Z, hat_left=Q, hat_right=Q.T, doubt=EXACT_FIT, interpolates=Q.shape[1] >= freedom
    )
    residuals, refit_rows = _residuals(part, mean_weights, inverse)
    return Z, residuals, refit_rows


def _residuals(part: Submatrix, mean_weights: Array, inverse: _Inverse) -> tuple[Array, Indices]:
    """Residuals (tau, q) of deleted rows in the sqrt-weighted units of B, and the rows that need a
    refit.

    A row of leverage near one takes Greville's formula if deleting it costs a rank, and a refit
    otherwise.
    """
    Z, hat_left, hat_right, doubt, interpolates = inverse
    remainder = 1 - np.einsum("lr,rl->l", hat_left, hat_right) - mean_weights
    close_rows = np.arange(len(hat_left)) if interpolates else np.flatnonzero(remainder <= doubt)
    remainder[close_rows] = 1.0
    residuals = (part.B - hat_left @ (hat_right @ part.B)) / remainder[:, None]
    costs_rank = np.ones(len(close_rows), dtype=bool)
    if not interpolates and len(close_rows):
        hat = hat_left[close_rows] @ hat_right + np.sqrt(
            np.outer(mean_weights[close_rows], mean_weights)
        )
        hat[np.arange(len(close_rows)), close_rows] = 0.0
        costs_rank = np.array(
            [costs_a_rank(float(hat_row @ hat_row), len(hat_left)) for hat_row in hat], dtype=bool
        )
    rank_rows = close_rows[costs_rank]
    Z_rank = Z[:, rank_rows]
    residuals[rank_rows] = (Z_rank.T @ (Z @ part.B)) / np.sum(Z_rank * Z_rank, axis=0)[:, None]
    return residuals, close_rows[~costs_rank]


def _from_gram(problem: RowData, part: Submatrix, mean_weights: Array) -> _Inverse | None:
    """Pseudo-inverse from the smaller Gram matrix, of the columns or the rows; None where that is
    not trusted.
    """
    A = part.A
    if not min(A.shape):
        return None
    if A.shape[1] < len(A) - problem.fit_intercept:
        (P,), inflation = inverses((A.T @ A)[None])
        if not inflation[0] < LARGEST_INFLATION:
            return None
        Z = P @ A.T
        return _Inverse(
            Z,
            hat_left=A,
            hat_right=Z,
            doubt=float(_doubtful_below(inflation)[0]),
            interpolates=False,
        )
    # A minimum-norm member. Root weights are orthogonal to centred rows; a multiple of their outer
    # product makes K definite.
    K = A @ A.T
    unit = np.trace(K) / len(K)
    null = np.sqrt(mean_weights)  # of length one with an intercept, else zero
    K += unit * np.outer(null, null)
    if nothing_but_rounding(np.diagonal(K), max(A.shape)):
        return None
    (P,), inflation = inverses(K[None])
    P = P - np.outer(null, null) / unit
    if not inflation[0] < LARGEST_INFLATION:
        return None
    if not np.min(np.diagonal(P) * np.diagonal(K)) > _doubtful_below(inflation)[0]:
        return None
    Z = A.T @ P
    return _Inverse(Z, hat_left=A, hat_right=Z, doubt=0.0, interpolates=True)


def inverses(G: Array) -> tuple[Array, Array]:
    """Inverses of Gram matrices (b, m, m), and the inflation of each: its largest entry in units of
    the columns.

    The diagonal holds the variance inflation factors. The largest entry of a positive definite
    matrix is on its diagonal; an inverse that rounding has made indefinite has a larger entry
    elsewhere. The inflation is infinite where there is no inverse. Columns of zeros get a diagonal
    entry of one, which is zero in all products.

    NumPy's functions release the interpreter lock; SciPy's do not.
    """
    diagonal = np.diagonal(G, axis1=1, axis2=2)
    zero = diagonal <= 0
    if zero.any():
        G = G + zero[:, :, None] * np.eye(G.shape[1])
        diagonal = np.diagonal(G, axis1=1, axis2=2)
    try:
        P: Array = np.asarray(np.linalg.inv(G), dtype=np.float64)
    except np.linalg.LinAlgError:
        if len(G) == 1:
            return np.zeros_like(G), np.full(1, np.inf)
        single = [inverses(matrix[None]) for matrix in G]
        return np.concatenate([P for P, _ in single]), np.concatenate(
            [inflation for _, inflation in single]
        )
    length = np.sqrt(diagonal)
    scaled = P * length[:, :, None]
    scaled *= length[:, None, :]
    largest = np.maximum(
        scaled.max(axis=(1, 2), initial=0.0), -scaled.min(axis=(1, 2), initial=0.0)
    )
    return P, np.where(np.isfinite(largest), largest, np.inf)


def _doubtful_below(inflation: Array) -> Array:
    """Smallest 1 - h for which r / (1 - h) keeps eight digits: h has an error of eps times the
    inflation.
    """
    return np.maximum(EXACT_FIT, 1e8 * EPS * inflation)


@dataclass(frozen=True)
class _Operator:
    """Derivative of the ensemble with respect to the targets.

    The derivative of the coefficients is :math:`M A' W + F`, with centred rows A. The derivative of
    the prediction at the means is `centre` plus the scale times `moved`.
    """

    M: NDArray[np.float64]  # (p, p)
    F: NDArray[np.float64] | None  # (p, n), of members whose inverse is not in M; None: zero
    centre: NDArray[np.float64]  # (n,) weight of each row in the mean, without the scale
    moved: NDArray[np.float64]  # (n,) what the scale applies to


@dataclass(frozen=True)
class TrainingRows:
    """Centred rows of a problem, read in blocks."""

    problem: RowData
    dead: NDArray[np.int64] = field(
        default_factory=lambda: np.empty(0, dtype=np.int64)
    )  # constant columns

    @cached_property
    def mean_weights(self) -> NDArray[np.float64]:
        """Weight of every row in the mean, (n,); zeros without an intercept."""
        return self.problem.weights / self.problem.total_weight * self.problem.fit_intercept

    @cached_property
    def _X(self) -> Any:
        return sp.csr_array(self.problem.X) if sp.issparse(self.problem.X) else self.problem.X

    def blocks(self) -> list[slice]:
        """Consecutive rows; the cuts, and so the rounding of sums, depend on the shape alone."""
        n, p = self.problem.shape
        most_rows = int(np.clip(BLOCK_BYTES // (8 * p), 64, 2048))
        count = -(-n // min(most_rows, max(64, -(-n // 4))))
        edges = np.linspace(0, n, count + 1).astype(int)
        return [slice(start, stop) for start, stop in pairwise(edges)]

    def block(self, rows: slice) -> NDArray[np.float64]:
        """Centred columns of a block of rows, (p, rows)."""
        part = self._X[rows]
        x = np.empty((self.problem.shape[1], rows.stop - rows.start))
        raw = part.toarray().T if sp.issparse(part) else part.T
        np.subtract(raw, self.problem.means[0][:, None], out=x)
        x[self.dead] = 0.0
        return x


@dataclass(frozen=True)
class Deleted:
    """Weighted sums over members of what deleting each row changes; the scale is not applied."""

    coef: NDArray[np.float64]  # (p, q)
    intercept: NDArray[np.float64]  # (q,)
    residual: NDArray[np.float64]  # (n, q) y_l minus the prediction for row l without row l
    mean_y: NDArray[np.float64]  # (n, q) mean target without row l
    mean_change: NDArray[np.float64]  # (n, q) mean target minus the mean target without row l
    moved: NDArray[np.float64]  # (n, q) change by row l of the prediction at the means of all rows
    operator: _Operator | None
    visit: Visit | None

    @classmethod
    def zeros(cls, problem: RowData, operator: bool, visit: Visit | None) -> Deleted:
        """Empty sums."""
        n, p = problem.shape
        q = problem.Y.shape[1]
        empty = None
        if operator:
            empty = _Operator(M=np.zeros((p, p)), F=None, centre=np.zeros(n), moved=np.zeros(n))
        return cls(
            coef=np.zeros((p, q)),
            intercept=np.zeros(q),
            residual=np.zeros((n, q)),
            mean_y=np.zeros((n, q)),
            mean_change=np.zeros((n, q)),
            moved=np.zeros((n, q)),
            operator=empty,
            visit=visit,
        )

    def add_shared(self, rows: TrainingRows, coef: Array, weight: float) -> None:
        """Add coefficients and means of members on all rows, with their total weight."""
        self.coef[:] += coef
        mean_x, mean_y = rows.problem.means
        mean_weights = rows.mean_weights[:, None]
        self.intercept[:] += weight * mean_y - mean_x @ coef
        change = mean_weights / (1 - mean_weights) * (rows.problem.Y - mean_y)
        self.mean_change[:] += weight * change
        self.mean_y[:] += weight * (mean_y - change)
        if self.operator is not None:
            self.operator.centre[:] += weight * rows.mean_weights

    def add_residuals(
        self, rows: TrainingRows, block: Any, residual: Array, change: Array | None
    ) -> None:
        """Add residuals (rows, q) of members on all rows for a block, and changes of all
        coefficients (q, p, rows).
        """
        self.residual[block] += residual
        self.moved[block] += rows.mean_weights[block, None] * residual
        if self.visit is not None and change is not None:
            self.visit(np.arange(len(self.coef)), block, change)

    def add_member(
        self, rows: TrainingRows, columns: Indices, member: _MemberDeletion, weight: float
    ) -> None:
        """Add a member with separate rows, means or inverse."""
        mean_shift = member.mean_x - rows.problem.means[0][columns]  # zero for a member on all rows
        self.coef[columns] += weight * member.coef
        self.intercept[:] += weight * member.intercept
        self.residual[:] += weight * member.residual
        self.mean_y[:] += weight * member.mean_y
        self.mean_change[:] += weight * (member.mean_all - member.mean_y)
        self.moved[member.rows] += (
            weight * member.mean_weights[:, None] * member.residual[member.rows]
        )
        if mean_shift.any():
            self.moved[member.rows] -= weight * (mean_shift @ member.coef_change()).T
        if self.visit is not None:
            self.visit(columns, member.rows, weight * member.coef_change())
        if self.operator is not None:
            assert self.operator.F is not None
            self.operator.F[np.ix_(columns, member.rows)] += weight * member.pinv
            self.operator.centre[member.rows] += weight * member.mean_weights
            self.operator.moved[member.rows] -= weight * (mean_shift @ member.pinv)


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
    n, p = problem.shape
    members = np.flatnonzero(weights)
    sums = Deleted.zeros(problem, operator, visit)
    tall = members[:0]
    if samples is None:
        tall = members[features.sizes[members] < n - problem.fit_intercept]
    sizes = features.sizes[tall]
    # one Gram matrix of all columns is less work than one for each member, or saves copies of many
    # rows
    saves_copies = p <= n and 32.0 * n * float(sizes.max(initial=0)) > GROUP_BYTES
    saves_work = float(p) ** 2 <= 2 * float(np.sum(sizes.astype(float) ** 2))
    if len(tall) and (saves_copies or saves_work):
        rows = TrainingRows(
            problem, np.flatnonzero(np.diagonal(problem.moments_by(threads).G) <= 0)
        )
        for form, form_members in _forms(problem, features, tall):
            added = _add_batches(
                rows=rows,
                form=form,
                weights=weights,
                members=form_members,
                threads=threads.quiet(),
                sums=sums,
            )
            members = np.setdiff1d(members, added)
    else:  # no Gram matrix is made: members centre their columns themselves
        rows = TrainingRows(problem)
    if len(members):
        sums = _add_one_by_one(
            rows=rows,
            features=features,
            samples=samples,
            weights=weights,
            members=members,
            threads=threads.quiet(),
            sums=sums,
        )
    return sums, rows


@dataclass(frozen=True)
class _Form:
    """Principal submatrices to invert: of the Gram matrix, or of its inverse for the columns
    outside a member.
    """

    features: Subsets  # columns of all members
    subsets: Subsets  # columns of the submatrices: the members' columns, or the complements
    M: Array  # (p, p) Gram matrix, or its inverse
    C: Array  # (p, q) right-hand sides, or the solution of all columns
    complement: bool = False
    inflation: float = 1.0  # of all columns, in the complement form


def _forms(problem: RowData, features: Subsets, members: Indices) -> list[tuple[_Form, Indices]]:
    """Members grouped by the form that takes less work."""
    n, p = problem.shape
    G = problem.moments.G
    C = problem.moments.C
    sizes = features.sizes[members]
    direct = _Form(features, features, G, C)
    large = sizes > p - sizes
    saved_flops = 2.0 * n * np.sum(sizes[large] ** 2.0 - (p - sizes[large]) ** 2.0)
    if saved_flops > 3.0 * p**3 + 4.0 * n * p**2:
        (P,), inflation = inverses(G[None])
        if inflation[0] < LARGEST_INFLATION**0.5:  # the form multiplies by the inverse once more
            complement = _Form(
                features,
                features.complement(),
                M=P,
                C=P @ C,
                complement=True,
                inflation=float(inflation[0]),
            )
            return [(complement, members[large]), (direct, members[~large])]
    return [(direct, members)]


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
        columns = np.stack([form.subsets[i] for i in members])
        P, inflation = inverses(form.M[columns[:, :, None], columns[:, None, :]])
        inflation *= form.inflation
        trusted = inflation < LARGEST_INFLATION
        if not trusted.all():
            members = members[trusted]
            columns = columns[trusted]
            P = P[trusted]
            inflation = inflation[trusted]
        adder = sp.csc_array(
            (np.ones(columns.size), columns.ravel(), np.arange(columns.size + 1)),
            shape=(len(form.M), columns.size),
        )
        return cls(
            members=members,
            weights=weights[members],
            columns=columns,
            inverse=P,
            coef=(P @ form.C[columns]).transpose(0, 2, 1),
            doubt=_doubtful_below(inflation)[:, None],
            adder=adder,
        )


def _add_batches(
    *,
    rows: TrainingRows,
    form: _Form,
    weights: Array,
    members: Indices,
    threads: Threads,
    sums: Deleted,
) -> Indices:
    """Add members on all rows from one Gram matrix, and return the members whose inverse was
    trusted.
    """
    blocks = rows.blocks()
    sizes = form.subsets.sizes[members]
    added = [members[:0]]
    batches: list[Indices] = []
    for size in np.unique(sizes):
        equal_size = members[sizes == size]
        step = max(1, int(BATCH_BYTES // (8 * max(1, size) * blocks[0].stop)))
        batches += [equal_size[first : first + step] for first in range(0, len(equal_size), step)]
    inverse_bytes = [8 * len(batch) * int(form.subsets.sizes[batch[0]]) ** 2 for batch in batches]
    group_numbers = np.cumsum(inverse_bytes) // GROUP_BYTES
    for number in np.unique(group_numbers):
        group = [batches[b] for b in np.flatnonzero(group_numbers == number)]

        def invert(start: int, stop: int, group: list[Indices] = group) -> list[_Batch]:
            return [_Batch.inverted(form, weights, batch) for batch in group[start:stop]]

        inverted = list(chain.from_iterable(threads(invert, len(group))))
        close_fits: list[tuple[Indices, Indices]] = []

        def work(
            start: int,
            stop: int,
            inverted: list[_Batch] = inverted,
            close_fits: list[Any] = close_fits,
        ) -> None:
            for block in blocks[start:stop]:
                residual, change = _on_block(
                    rows,
                    form,
                    block,
                    inverted,
                    with_changes=sums.visit is not None,
                    close_fits=close_fits,
                )
                sums.add_residuals(rows, block, residual, change)

        _add_members(rows, form, inverted, sums)
        threads(work, len(blocks), chunk=1)
        _add_close_rows(rows, form.features, weights, close_fits=close_fits, sums=sums)
        added += [batch.members for batch in inverted]
    return np.concatenate(added)


def _add_members(rows: TrainingRows, form: _Form, batches: list[_Batch], sums: Deleted) -> None:
    """Add what needs no rows: coefficients, intercepts, means and the mean inverse."""
    coef = np.zeros(form.C.shape)
    M = np.zeros(form.M.shape)
    total_weight = sum(float(batch.weights.sum()) for batch in batches)
    for batch in batches:
        for weight, columns, P, b in zip(
            batch.weights, batch.columns, batch.inverse, batch.coef, strict=True
        ):
            coef[columns] += weight * b.T
            if sums.operator is not None:
                M[np.ix_(columns, columns)] += weight * P
    if form.complement:
        coef = total_weight * form.C - form.M @ coef
    sums.add_shared(rows, coef, total_weight)
    if sums.operator is not None:
        sums.operator.M[:] += total_weight * form.M - form.M @ M @ form.M if form.complement else M


def _on_block(
    rows: TrainingRows,
    form: _Form,
    block: slice,
    batches: list[_Batch],
    *,
    with_changes: bool,
    close_fits: list[Any],
) -> tuple[Array, Array | None]:
    """Sums over members of residuals without each row of a block, (rows, q), and of changes, (q, p,
    rows).

    A row that a member fits too closely adds zero here; the pair is appended to `close_fits`, as
    members and rows.
    """
    a = rows.block(block)
    weight = rows.problem.weights[block]
    q = form.C.shape[1]
    g = form.M @ a if form.complement else a
    total = np.zeros((q, a.shape[1]))
    change = np.zeros((q, *a.shape)) if with_changes else None
    for batch in batches:
        A = np.take(g, batch.columns, axis=0)
        D = batch.inverse @ A
        leverage = np.einsum("bjl,bjl->bl", A, D)
        fitted = batch.coef @ A
        if form.complement:
            leverage = np.einsum("jl,jl->l", a, g) - leverage
            fitted = form.C.T @ a - fitted
        remainder = 1 - rows.mean_weights[block] - weight * leverage
        doubtful = remainder <= batch.doubt
        if doubtful.any():
            remainder[doubtful] = np.inf
            doubtful_members, doubtful_rows = np.nonzero(doubtful)
            close_fits.append((batch.members[doubtful_members], block.start + doubtful_rows))
        centred_y = (rows.problem.Y[block] - rows.problem.means[1]).T
        residual = (centred_y - fitted) / remainder[:, None]
        residual *= batch.weights[:, None, None]
        total += residual.sum(axis=0)
        if change is not None:
            for t in range(q):
                last_target = t == q - 1  # D is not needed any more
                member_change = np.multiply(
                    D, (residual[:, t] * weight)[:, None], out=D if last_target else None
                )
                change[t] += batch.adder @ member_change.reshape(-1, a.shape[1])
    if change is not None and form.complement:
        change = g * (weight * total)[:, None] - form.M @ change
    return total.T, change


def _add_close_rows(
    rows: TrainingRows,
    features: Subsets,
    weights: Array,
    *,
    close_fits: list[tuple[Indices, Indices]],
    sums: Deleted,
) -> None:
    """Add residuals and changes for rows that members fit too closely for the batched inverse."""
    if not close_fits:
        return
    members, close_rows = (np.concatenate(parts) for parts in zip(*close_fits, strict=True))
    for i in np.unique(members):
        member = delete_each_row(rows.problem, features[i], None)
        member_rows = np.sort(close_rows[members == i])
        change = None
        if sums.visit is not None:
            change = np.zeros((sums.coef.shape[1], len(sums.coef), len(member_rows)))
            change[:, features[i]] = weights[i] * member.coef_change()[:, :, member_rows]
        sums.add_residuals(rows, member_rows, weights[i] * member.residual[member_rows], change)


def _add_one_by_one(
    *,
    rows: TrainingRows,
    features: Subsets,
    samples: Subsets | None,
    weights: Array,
    members: Indices,
    threads: Threads,
    sums: Deleted,
) -> Deleted:
    """Add members that need separate factorisations, a few at a time, in their order."""
    n = len(rows.mean_weights)
    sizes = features.sizes[members]
    if sums.operator is not None:
        memory.require(
            8.0 * features.n_items * n,
            f"The derivative of {features.n_items} coefficients with respect to {n} targets",
            "Standard errors need it for members on some of the rows, dependent columns or more"
            " columns than rows; predict_interval(method='jackknife') does not.",
        )
        sums = replace(sums, operator=replace(sums.operator, F=np.zeros((features.n_items, n))))
    n_rows = n if samples is None else samples.sizes[members]
    member_bytes = 32.0 * max(1.0, float(np.max(sizes * n_rows)))
    memory.require(
        member_bytes,
        f"Deleting rows from a member of {sizes.max()} columns",
        "Use fewer columns or rows a member.",
    )
    room = min(4 * GROUP_BYTES, memory.available_bytes() / 4)
    step = int(np.clip(room / member_bytes, 1, 16 * threads.n_threads))
    for first in range(0, len(members), step):
        group = members[first : first + step]

        def work(start: int, stop: int, group: Indices = group) -> list[_MemberDeletion]:
            return [
                delete_each_row(rows.problem, features[i], None if samples is None else samples[i])
                for i in group[start:stop]
            ]

        deletions = chain.from_iterable(threads(work, len(group), chunk=1))
        for i, member in zip(group, deletions, strict=True):
            sums.add_member(rows, features[i], member, float(weights[i]))
    return sums


def delete_rows_of_limit(
    problem: RowData, process: Determinantal, *, visit: Visit | None = None, operator: bool = False
) -> tuple[Deleted, TrainingRows]:
    """Sums of :func:`delete_rows` for infinitely many determinantal members."""
    rows = TrainingRows(problem, np.flatnonzero(process.spreads == 0))
    sums = Deleted.zeros(problem, operator, visit)
    half = (
        np.sqrt(process.spreads)[:, None]
        * process.vectors
        / np.sqrt(process.values + process.penalty)
    )  # M = hh'
    weight = problem.weights
    Y = problem.Y - problem.means[1]
    coef = np.zeros(sums.coef.shape)
    for block in rows.blocks():
        coef += half @ ((half.T @ rows.block(block)) @ (weight[block, None] * Y[block]))
    sums.add_shared(rows, coef, 1.0)
    if sums.operator is not None:
        sums.operator.M[:] += half @ half.T
    for block in rows.blocks():
        x = rows.block(block)
        inner = half.T @ x  # (rank, rows)
        remainder = 1 - rows.mean_weights[block] - weight[block] * np.sum(inner**2, axis=0)
        residual = (Y[block] - x.T @ coef) / remainder[:, None]
        change = None if visit is None else weight[block] * (half @ inner) * residual.T[:, None]
        sums.add_residuals(rows, block, residual, change)
    return sums, rows
