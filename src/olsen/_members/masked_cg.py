r"""All members at once: conjugate gradients on masked matrices.

.. math:: V \leftarrow \text{mask} \circ (G\,(\text{mask} \circ V))
          \qquad\text{or}\qquad
          V \leftarrow \text{mask} \circ (X'(X (\text{mask} \circ V)))

One step of all k members is one plain matrix product, which every library runs at full speed. For large p it is cheaper
than k factorisations of m^3 / 3 flops each, it needs no Gram matrix where that would not fit, it leaves sparse X
sparse, and it runs wherever the array API does.

**Single precision.** On the host the Gram matrix of large problems is made in float32 and the solution corrected with
residuals in double precision,

.. math:: d = \tilde G^{-1} r , \qquad x \leftarrow x + d , \qquad r \leftarrow b - X'(X x)

which takes half the memory and about half the time, to make it and in every step. Its rounding does not reach the
result, because residuals are taken from the data in float64; it only limits how much one round gains, a factor of about
the condition number times 6e-8. Two rounds give ten digits on well-conditioned data, and the error is that of least
squares on X, not of a Gram matrix in double precision.

The price: correlated columns cost steps. So members that the first steps show to be dearer than a factorisation, that
are not to be trusted on the normal equations, or that do not converge, are handed over to a direct solver. The relative
error of every member's coefficients, in units of the columns' spread, is about ``tol`` or less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from .._execution import memory, messages
from .._execution.arrays import smaller_batch
from .._execution.threads import Threads, cached_property
from ..subsets import Subsets
from . import gram, orthogonal
from .cg import DONE, SLOW, UNPROBED, UNTRUSTED, Outcome, TooSlow, iterate
from .cg_operators import OWN, WHOLE, Batch, Rows, Submatrices, UnitGram, rows_batch
from .problem import Problem, Solution

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]

TOL = 1e-9  # default relative error of a member's coefficients
MAX_STEPS = 1000
SINGLE_FROM = 1e9  # n p^2 from which a Gram matrix in float32 and refinement are worth their rounds
SINGLE_TOL = 1e-5  # relative error of one round of refinement
BATCH_BYTES = 5e8  # arrays of one batch of members
WORTH_ASKING = 2e9  # flops below which nobody waits, so nothing is handed over for its cost


class Solved(NamedTuple):
    """A batch of members, on the device: coefficients (p, q, k), intercepts (q, k), and what became of them."""

    members: NDArray[np.int64]
    mask: Any  # (p, k)
    coef: Any
    intercept: Any
    mean_y: Any  # (q, 1)
    outcome: Outcome


def solve(problem: Problem, features: Subsets, samples: Subsets | None, mapper: Threads) -> Solution:
    """Coefficients of every member; the members that the iteration gives up come from a direct solver."""
    out = Solution.empty(features.sizes, problem.Y.shape[1], "masked_cg")
    for one in iterations(problem, features):
        with mapper.blas():
            parts = [_written(out, features, part) for part in one.batches()]
        if mapper.report:
            mapper.report(len(one.members))
        warn_slow(parts, len(one.members))
        left = np.sort(np.concatenate([part.members[part.outcome.state != DONE] for part in parts]))
        if len(left):
            direct = {"normal": gram.solve_own, "dual": orthogonal.solve_wide}.get(one.kind, gram.solve_shared)
            found = direct(problem, features.take(left), None, mapper)
            out.put(left, features.sizes, found, refitted=False)
    return out


def _written(out: Solution, features: Subsets, part: Solved) -> Solved:
    """Write coefficients of a batch on the host to their places; the batch without them."""
    where = np.zeros(len(features), dtype=bool)
    where[part.members] = True
    picked = np.repeat(where, features.sizes)
    for t in range(part.coef.shape[1]):
        out.values[picked, t] = part.coef[:, t, :].T[part.mask.T]
    out.intercepts[part.members] = part.intercept.T
    return part._replace(mask=None, coef=None)


def warn_slow(parts: list[Solved], k: int) -> None:
    """Say how many members did not converge, and how far they came."""
    error = np.concatenate([part.outcome.error[part.outcome.state == SLOW] for part in parts])
    if not len(error):
        return
    reached = f"{np.max(error):.1e}" if np.all(np.isfinite(error)) else "not known"
    messages.warn(
        f"{len(error)} of {k} members did not converge in {MAX_STEPS} steps of masked_cg (largest relative error about "
        f"{reached}); they were solved directly instead. Collinear columns cause this: solver='auto' chooses for you.",
        ConvergenceWarning,
    )


def iterations(problem: Problem, features: Subsets) -> Iterator[Iteration]:
    """Members by their operator: "dual" for fewer rows than columns, "gram", "single" or "normal" for the others."""
    wide = features.sizes > problem.shape[0] - problem.fit_intercept
    thin = "normal"
    if pays_for_gram(problem, int(np.count_nonzero(~wide))):
        small = float(problem.shape[0]) * problem.shape[1] ** 2 < SINGLE_FROM
        double = small or problem.has_moments or not problem.space.on_host or sp.issparse(problem.X)
        thin = "gram" if double else "single"
    for kind, members in (("dual", np.flatnonzero(wide)), (thin, np.flatnonzero(~wide))):
        if len(members):
            yield Iteration(problem, features, kind, members)


def pays_for_gram(problem: Problem, k: int) -> bool:
    """Whether a Gram matrix, n p^2 flops and 8 p^2 bytes, is repaid by steps of 2 p^2 instead of 4 n p flops."""
    (n, p), space = problem.shape, problem.space
    if problem.has_moments:
        return True
    if sp.issparse(problem.X):  # sparse products run at about a tenth of the rate of dense ones
        return p <= 2000 and 2.0 * p**2 < 40.0 * problem.X.nnz
    wanted = 8.0 * p**2
    if space.on_host:
        room = 0.5 * memory.available_bytes()
    else:  # a device is asked, which takes a while, only where it might say no
        room = 2 * space.batch_bytes(np.inf) if wanted > BATCH_BYTES / 10 else np.inf
    return wanted <= room and float(n) * p < 32 * k * (4.0 * n - 2.0 * p)  # 32 steps, before any were made


@dataclass(frozen=True)
class Iteration:
    """Members that share an operator."""

    problem: Problem
    features: Subsets
    kind: str  # "gram", "single", "normal" or "dual"
    members: NDArray[np.int64]

    @property
    def shared(self) -> bool:
        """Whether all members are on one Gram matrix."""
        return self.kind in ("gram", "single")

    @cached_property
    def rows(self) -> Rows:
        """The rows, about their means."""
        return Rows.from_problem(self.problem)

    @cached_property
    def gram(self) -> UnitGram:
        """Products of all rows."""
        if self.kind == "single":
            return UnitGram.in_single(self.rows)
        return UnitGram.from_moments(self.problem.moments)

    def batches(self) -> Iterator[Solved]:
        """Solve members batch by batch, as many at a time as memory allows."""
        n, p = self.problem.shape
        _ = self.gram if self.shared else self.rows.spread_and_far  # what smaller batches would not help
        probing: str = WHOLE if self.shared and n >= 2 * p else OWN
        # about ten arrays of p (and up to six of n) numbers a column
        numbers = 10 * p + (0 if self.shared else 6 if self.kind == "dual" else 2) * n
        columns = self.problem.space.batch_bytes(BATCH_BYTES) // (8 * numbers)
        limit, smallest, todo = max(1, int(columns // (self.problem.Y.shape[1] + 1))), np.nan, [self.members]
        while todo:
            here = todo.pop()
            if len(here) > limit:
                todo += [here[limit:], here[:limit]]
                continue
            try:
                solved = self._solve(here, None if probing == WHOLE and np.isfinite(smallest) else probing, smallest)
            except Exception as error:
                limit = smaller_batch(error, len(here))
                todo.append(here)
                continue
            if np.any(solved.outcome.state == UNPROBED):
                probing = OWN
                todo.append(here)
                continue
            smallest = solved.outcome.smallest[0] if probing == WHOLE else np.nan
            yield solved

    def _solve(self, members: Indices, probing: str | None, smallest: float) -> Solved:
        space, mask, outcome = self.problem.space, self._mask(members), Outcome.waiting(len(members))
        outcome.smallest[:] = smallest
        if self.shared:
            batch, far = self.gram.batch(mask, probing), self.gram.far
        else:
            batch, far = rows_batch(self.rows, mask, dual=self.kind == "dual"), self.rows.spread_and_far[1]
        if far is not None and far.any():
            outcome.state[[far[self.features[i]].any() for i in members]] = UNTRUSTED
        how: dict[str, Any] = {"max_steps": MAX_STEPS, "too_slow": self._too_slow(members, probing)}
        with np.errstate(over="ignore", invalid="ignore"):  # units too far apart for squares: handed over as untrusted
            if self.kind == "single":
                X = _solve_in_single(self.rows, self.gram, batch, outcome, TOL, **how)
            else:
                how["space"] = space
                X = iterate(batch.operator, batch.B, batch.member, batch.probe, outcome, tol=TOL, **how)
            coef, intercept = batch.recover(X, space.xp)
        return Solved(members, mask, coef, intercept, batch.mean_y, outcome)

    def _mask(self, members: Indices) -> Any:
        """Boolean (p, k) of some members, where the problem lives."""
        some = self.features if len(members) == len(self.features) else self.features.take(members)
        return self.problem.space.put(some.mask()).T

    def _too_slow(self, members: Indices, probing: str | None) -> TooSlow:
        """Function that says whether the rest would cost more than factorisations, asked when a quarter is paid.

        A flop of a factorisation costs about as much as two of products on the host. On a GPU batched factorisations
        are far behind (on an H200, 40 at 120 columns, 12 at 1000 and 9 at 4000), and the first guess of the steps to
        come is often too high, so members stay four times longer.
        """
        n, p = self.problem.shape
        m: Array = self.features.sizes[members].astype(np.float64)
        dear = 2.0 if self.problem.space.on_host else 32 + 16_000 / np.maximum(m, 1.0)
        if self.kind == "dual":
            direct: Array = 2 * n**2 * m + dear * n**3 / 3
        else:
            direct = dear * m * m * m / 3 + (0.0 if self.shared else 2 * n * m * m)
        # of a product, a column; single precision takes half the time of double
        step = {"single": 1.0 * p**2, "gram": 2.0 * p**2}.get(self.kind) or 4.0 * self.rows.entries
        step, total = step * (self.problem.Y.shape[1] + (probing == OWN)), direct.sum()

        def too_slow(left: Indices, expected: float, done: int) -> bool:
            price = total if len(left) == len(direct) else direct[left].sum()
            paid, to_come = step * len(direct) * done, step * len(left) * expected
            return bool(min(paid + to_come, price) > WORTH_ASKING and paid > price / 4 and to_come > price)

        return too_slow


def _solve_in_single(rows: Rows, gram: UnitGram, batch: Batch, outcome: Outcome, tol: float, **how: Any) -> Array:
    """Solutions of the targets of a batch, in the units of `gram`; `how` goes to the iteration."""
    target = np.flatnonzero(~batch.probe)
    X = _round(batch.operator, batch.B, batch.member, batch.probe, outcome, SINGLE_TOL, how)[:, target]
    single, B, member = batch.operator.take(target, np), batch.B[:, target], batch.member[target]
    exact = Submatrices(rows, gram.scale * single.mask, None if rows.problem.weight is None else rows.root)
    for _ in range(6):
        R = B - exact(X)
        active = _judge(outcome, R, X, member, tol)
        if not active.any():
            break
        here = np.flatnonzero(active[member])
        numbers, local = np.unique(member[here], return_inverse=True)
        again = Outcome.waiting(len(numbers))
        again.smallest[:] = outcome.smallest[numbers]
        needed = max(SINGLE_TOL, 0.2 * tol / outcome.error[active].max())  # the last round need not go all the way
        X[:, here] += _round(single.take(here, np), R[:, here], local, np.zeros(len(here), bool), again, needed, how)
        outcome.steps += again.steps
        # what the round left, and what rounding of the float32 matrix, about 1e-6, may hide from it
        outcome.error[numbers] *= again.error + 1e-6 / outcome.smallest[numbers]
        if np.all(again.state == DONE) and np.all(outcome.error[numbers] <= tol):
            break
    else:
        outcome.state[active] = SLOW
    return X


def _round(
    operator: Any,
    R: Array,
    member: Indices,
    probe: NDArray[np.bool_],
    outcome: Outcome,
    tol: float,
    how: dict[str, Any],
) -> Array:
    """Approximate solutions for the residuals R, each scaled to length one for float32."""
    length = np.linalg.norm(R, axis=0)
    length[length == 0] = 1.0
    limit = 1e4  # largest trusted inverse eigenvalue: a round must gain digits
    given = (R / length).astype(np.float32), member, probe, outcome
    solved: Array = iterate(operator, *given, tol=tol, limit=limit, **how) * length
    return solved


def _judge(outcome: Outcome, R: Array, X: Array, member: Indices, tol: float) -> Flags:
    """Members whose first round went well and that are not accurate enough yet."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.linalg.norm(R, axis=0) / np.linalg.norm(X, axis=0)
    ratio[~(np.abs(X).max(axis=0, initial=0.0) > 0)] = 0.0
    error = np.zeros(len(outcome.state))
    np.maximum.at(error, member, ratio)
    error /= outcome.smallest
    going: Flags = outcome.state == DONE
    outcome.error[going] = error[going]
    return going & ~(error <= tol)
