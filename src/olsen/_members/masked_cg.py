r"""All members at once: conjugate gradients on masked matrices.

.. math:: V \leftarrow \text{mask} \circ (G\,(\text{mask} \circ V))
          \qquad\text{or}\qquad
          V \leftarrow \text{mask} \circ (X'(X (\text{mask} \circ V)))

One step of all k members is one plain matrix product, which every library runs at full speed. For
large p it is cheaper than k factorisations of m^3 / 3 flops each, it needs no Gram matrix where
that would not fit, it leaves sparse X sparse, and it runs on every array library that follows the
array API.

**Single precision.** On the host the Gram matrix of large problems is made in float32 and the
solution corrected with residuals in double precision,

.. math:: d = \tilde G^{-1} r , \qquad x \leftarrow x + d , \qquad r \leftarrow b - X'(X x)

which takes half the memory and about half the time, both to compute the matrix and in every step.
The rounding of the matrix does not reach the result, because residuals are computed from the data
in float64; it only limits how much one round gains, a factor of about the condition number times
6e-8. Two rounds give ten digits on well-conditioned data, and the error is that of least squares on
X, not of a Gram matrix in double precision.

The price: correlated columns cost steps. Three kinds of members are handed over to a direct solver:
members that the first steps show to be dearer than a factorisation, members that are not trusted on
the normal equations, and members that do not converge. The relative error of every member's
coefficients, in units of the columns' standard deviations, is about ``tol`` or less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from .._data.rows import RowData
from .._execution import memory, messages
from .._execution.arrays import smaller_batch
from .._execution.threads import Threads, cached_property
from ..subsets import Subsets
from . import gram, orthogonal
from .cg import DONE, SLOW, UNPROBED, UNTRUSTED, Outcome, TooSlow, iterate
from .cg_operators import OWN, WHOLE, Batch, Rows, Submatrices, UnitGram, rows_batch
from .solution import Solution

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]

TOL = 1e-9  # default relative error of a member's coefficients
MAX_STEPS = 1000
MIN_SINGLE_FLOPS = (
    1e9  # n p^2 from which a Gram matrix in float32 and refinement are worth their rounds
)
SINGLE_TOL = 1e-5  # relative error of one round of refinement
LARGEST_SINGLE_INVERSE = (
    1e4  # largest trusted inverse eigenvalue in float32: a round must gain digits
)
BATCH_BYTES = 5e8  # arrays of one batch of members
MIN_COMPARED_FLOPS = 2e9  # below, nobody waits, so no member is handed over for its cost


class Solved(NamedTuple):
    """Solved batch of members, on the device: coefficients (p, q, k), intercepts (q, k), and
    outcomes.
    """

    members: NDArray[np.int64]
    mask: Any  # (p, k)
    coef: Any
    intercept: Any
    mean_y: Any  # (q, 1)
    outcome: Outcome


def solve(
    problem: RowData, features: Subsets, samples: Subsets | None, threads: Threads
) -> Solution:
    """Coefficients of all members; a direct solver takes the members that the iteration gives up."""
    solution = Solution.empty(features.sizes, problem.Y.shape[1], "masked_cg")
    for iteration in iterations(problem, features):
        with threads.blas():
            parts = [_store(solution, features, part) for part in iteration.batches()]
        if threads.report:
            threads.report(len(iteration.members))
        warn_slow(parts, len(iteration.members))
        given_up = np.sort(
            np.concatenate([part.members[part.outcome.state != DONE] for part in parts])
        )
        if len(given_up):
            direct_solvers = {"normal": gram.solve_own, "dual": orthogonal.solve_wide}
            solve_directly = direct_solvers.get(iteration.kind, gram.solve_shared)
            direct = solve_directly(problem, features.take(given_up), None, threads)
            solution.put(given_up, features.sizes, direct, refitted=False)
    return solution


def _store(solution: Solution, features: Subsets, part: Solved) -> Solved:
    """Write the coefficients of a batch to the solution, and return the batch without its
    coefficients.
    """
    in_batch = np.zeros(len(features), dtype=bool)
    in_batch[part.members] = True
    entries = np.repeat(in_batch, features.sizes)
    for t in range(part.coef.shape[1]):
        solution.values[entries, t] = part.coef[:, t, :].T[part.mask.T]
    solution.intercepts[part.members] = part.intercept.T
    return part._replace(mask=None, coef=None)


def warn_slow(parts: list[Solved], k: int) -> None:
    """Warn of members that did not converge, with their number and the largest error."""
    error = np.concatenate([part.outcome.error[part.outcome.state == SLOW] for part in parts])
    if not len(error):
        return
    reached = f"{np.max(error):.1e}" if np.all(np.isfinite(error)) else "not known"
    messages.warn(
        f"{len(error)} of {k} members did not converge in {MAX_STEPS} steps of masked_cg (largest"
        f" relative error about {reached}); they were solved directly instead. Collinear columns"
        " cause this: solver='auto' chooses for you.",
        ConvergenceWarning,
    )


def iterations(problem: RowData, features: Subsets) -> Iterator[Iteration]:
    """Group members by operator: "dual" for fewer rows than columns, else "gram", "single" or
    "normal".
    """
    n, p = problem.shape
    wide = features.sizes > n - problem.fit_intercept
    tall_kind = "normal"
    if pays_for_gram(problem, int(np.count_nonzero(~wide))):
        small = float(n) * p**2 < MIN_SINGLE_FLOPS
        double = small or problem.has_moments or not problem.space.on_host or sp.issparse(problem.X)
        tall_kind = "gram" if double else "single"
    for kind, members in (("dual", np.flatnonzero(wide)), (tall_kind, np.flatnonzero(~wide))):
        if len(members):
            yield Iteration(problem, features, kind, members)


def pays_for_gram(problem: RowData, k: int) -> bool:
    """Whether a Gram matrix, n p^2 flops and 8 p^2 bytes, is repaid by steps of 2 p^2 instead of 4
    n p flops.
    """
    n, p = problem.shape
    space = problem.space
    if problem.has_moments:
        return True
    if sp.issparse(problem.X):  # sparse products run at about a tenth of the rate of dense ones
        return p <= 2000 and 2.0 * p**2 < 40.0 * problem.X.nnz
    gram_bytes = 8.0 * p**2
    if space.on_host:
        room = 0.5 * memory.available_bytes()
    else:  # asking a device for its memory takes a while, so it is asked only where the answer might be no
        room = 2 * space.batch_bytes(np.inf) if gram_bytes > BATCH_BYTES / 10 else np.inf
    return gram_bytes <= room and float(n) * p < 32 * k * (4.0 * n - 2.0 * p)  # a guess of 32 steps


@dataclass(frozen=True)
class Iteration:
    """Members that share an operator."""

    problem: RowData
    features: Subsets
    kind: str  # "gram", "single", "normal" or "dual"
    members: NDArray[np.int64]

    @property
    def shared(self) -> bool:
        """Whether all members are on one Gram matrix."""
        return self.kind in ("gram", "single")

    @cached_property
    def rows(self) -> Rows:
        """Centred rows of the problem."""
        return Rows.from_problem(self.problem)

    @cached_property
    def gram(self) -> UnitGram:
        """Products of all rows, in units of the columns' lengths."""
        if self.kind == "single":
            return UnitGram.in_single(self.rows)
        return UnitGram.from_moments(self.problem.moments)

    def batches(self) -> Iterator[Solved]:
        """Solve members batch by batch, as many at a time as memory allows."""
        n, p = self.problem.shape
        # computed outside of the loop, since smaller batches would not help if memory runs out here
        _ = self.gram if self.shared else self.rows.spread_and_cancelling
        probing: str = WHOLE if self.shared and n >= 2 * p else OWN
        # about ten arrays of p (and up to six of n) numbers a column
        row_arrays = 0 if self.shared else 6 if self.kind == "dual" else 2
        column_bytes = 8 * (10 * p + row_arrays * n)
        columns = self.problem.space.batch_bytes(BATCH_BYTES) // column_bytes
        limit = max(1, int(columns // (self.problem.Y.shape[1] + 1)))
        smallest = np.nan
        waiting = [self.members]
        while waiting:
            members = waiting.pop()
            if len(members) > limit:
                waiting += [members[limit:], members[:limit]]
                continue
            try:
                already_probed = probing == WHOLE and np.isfinite(smallest)
                solved = self._solve(members, None if already_probed else probing, smallest)
            except Exception as error:
                limit = smaller_batch(error, len(members))
                waiting.append(members)
                continue
            if np.any(solved.outcome.state == UNPROBED):
                probing = OWN
                waiting.append(members)
                continue
            smallest = solved.outcome.smallest[0] if probing == WHOLE else np.nan
            yield solved

    def _solve(self, members: Indices, probing: str | None, smallest: float) -> Solved:
        space = self.problem.space
        mask = self._mask(members)
        outcome = Outcome.waiting(len(members))
        outcome.smallest[:] = smallest
        if self.shared:
            batch = self.gram.batch(mask, probing)
            cancelling = self.gram.cancelling
        else:
            batch = rows_batch(self.rows, mask, dual=self.kind == "dual")
            cancelling = self.rows.spread_and_cancelling[1]
        if cancelling is not None and cancelling.any():
            outcome.state[[cancelling[self.features[i]].any() for i in members]] = UNTRUSTED
        too_slow = self._too_slow(members, probing)
        with np.errstate(
            over="ignore", invalid="ignore"
        ):  # units too far apart for squares: handed over as untrusted
            if self.kind == "single":
                X = _solve_in_single(self.rows, self.gram, batch, outcome, too_slow=too_slow)
            else:
                X = iterate(
                    batch.operator,
                    batch.B,
                    batch.member,
                    probe=batch.probe,
                    outcome=outcome,
                    tol=TOL,
                    max_steps=MAX_STEPS,
                    space=space,
                    too_slow=too_slow,
                )
            coef, intercept = batch.recover(X, space.xp)
        return Solved(
            members=members,
            mask=mask,
            coef=coef,
            intercept=intercept,
            mean_y=batch.mean_y,
            outcome=outcome,
        )

    def _mask(self, members: Indices) -> Any:
        """Boolean mask (p, k) of the members' columns, where the problem lives."""
        features = (
            self.features if len(members) == len(self.features) else self.features.take(members)
        )
        return self.problem.space.put(features.mask()).T

    def _too_slow(self, members: Indices, probing: str | None) -> TooSlow:
        """Rule that gives members up if further steps would cost more than factorisations; asked
        after a quarter.

        A flop of a factorisation costs about as much as two of products on the host. On a GPU
        batched factorisations are far behind (on an H200, 40 at 120 columns, 12 at 1000 and 9 at
        4000), and the first guess of the steps to come is often too high, so members stay four
        times longer.
        """
        n, p = self.problem.shape
        m: Array = self.features.sizes[members].astype(np.float64)
        flop_price = 2.0 if self.problem.space.on_host else 32 + 16_000 / np.maximum(m, 1.0)
        if self.kind == "dual":
            direct: Array = 2 * n**2 * m + flop_price * n**3 / 3
        else:
            direct = flop_price * m * m * m / 3 + (0.0 if self.shared else 2 * n * m * m)
        # flops of a product, a column; single precision takes half the time of double
        column_flops = {"single": 1.0 * p**2, "gram": 2.0 * p**2}.get(
            self.kind
        ) or 4.0 * self.rows.entries
        step_flops = column_flops * (self.problem.Y.shape[1] + (probing == OWN))
        total = direct.sum()

        def too_slow(waiting: Indices, expected_steps: float, steps_done: int) -> bool:
            price = total if len(waiting) == len(direct) else direct[waiting].sum()
            paid = step_flops * len(direct) * steps_done
            to_come = step_flops * len(waiting) * expected_steps
            return bool(
                min(paid + to_come, price) > MIN_COMPARED_FLOPS
                and paid > price / 4
                and to_come > price
            )

        return too_slow


def _solve_in_single(
    rows: Rows, gram: UnitGram, batch: Batch, outcome: Outcome, *, too_slow: TooSlow
) -> Array:
    """Solutions of the targets of a batch, in the units of `gram`, by rounds of refinement."""
    targets = np.flatnonzero(~batch.probe)
    X = _round(
        batch.operator,
        batch.B,
        batch.member,
        probe=batch.probe,
        outcome=outcome,
        tol=SINGLE_TOL,
        too_slow=too_slow,
    )[:, targets]
    single = batch.operator.take(targets, np)
    B = batch.B[:, targets]
    member = batch.member[targets]
    exact = Submatrices(
        rows, gram.scale * single.mask, None if rows.problem.weight is None else rows.root
    )
    for _ in range(6):
        R = B - exact(X)
        active = _judge(outcome, R, X, member)
        if not active.any():
            break
        columns = np.flatnonzero(active[member])
        numbers, local_numbers = np.unique(member[columns], return_inverse=True)
        round_outcome = Outcome.waiting(len(numbers))
        round_outcome.smallest[:] = outcome.smallest[numbers]
        X[:, columns] += _round(
            single.take(columns, np),
            R[:, columns],
            local_numbers,
            probe=np.zeros(len(columns), bool),
            outcome=round_outcome,
            # the last round need not reduce the error by more than is missing
            tol=max(SINGLE_TOL, 0.2 * TOL / outcome.error[active].max()),
            too_slow=too_slow,
        )
        outcome.steps += round_outcome.steps
        # the error left by the round, and what rounding of the float32 matrix, about 1e-6, may hide
        # from it
        outcome.error[numbers] *= round_outcome.error + 1e-6 / outcome.smallest[numbers]
        if np.all(round_outcome.state == DONE) and np.all(outcome.error[numbers] <= TOL):
            break
    else:
        outcome.state[active] = SLOW
    return X


def _round(
    operator: Any,
    R: Array,
    member: Indices,
    *,
    probe: NDArray[np.bool_],
    outcome: Outcome,
    tol: float,
    too_slow: TooSlow,
) -> Array:
    """Approximate solutions for the residuals R, each scaled to length one for float32."""
    length: Array = np.linalg.norm(R, axis=0)
    length[length == 0] = 1.0
    unit_solutions: Array = iterate(
        operator,
        (R / length).astype(np.float32),
        member,
        probe=probe,
        outcome=outcome,
        tol=tol,
        max_steps=MAX_STEPS,
        limit=LARGEST_SINGLE_INVERSE,
        too_slow=too_slow,
    )
    return unit_solutions * length


def _judge(outcome: Outcome, R: Array, X: Array, member: Indices) -> Flags:
    """Members that converged in their first round and are not accurate enough yet."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.linalg.norm(R, axis=0) / np.linalg.norm(X, axis=0)
    ratio[~(np.abs(X).max(axis=0, initial=0.0) > 0)] = 0.0
    error = np.zeros(len(outcome.state))
    np.maximum.at(error, member, ratio)
    error /= outcome.smallest
    converged: Flags = outcome.state == DONE
    outcome.error[converged] = error[converged]
    return converged & ~(error <= TOL)
