r"""All members at once: conjugate gradients on masked matrices.

.. math:: V \leftarrow \text{mask} \circ (G\,(\text{mask} \circ V))
          \qquad\text{or}\qquad
          V \leftarrow \text{mask} \circ (X'(\text{rowmask} \circ (X V)))

One step of all k members is one plain matrix product, which every library runs at full speed. For large p it is cheaper
than k factorisations of m^3 / 3 flops each, it needs no Gram matrix where that would not fit, it leaves sparse X
sparse, and it runs wherever the array API does.

The price: correlated columns cost steps. So members that the first steps show to be dearer than a factorisation, that
are not to be trusted on the normal equations, or that do not converge, are handed over to a direct solver. The relative
error of every member's coefficients, in units of the columns' spread, is about ``tol`` or less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from .._execution import memory, messages
from .._execution.arrays import Space, smaller_batch
from .._execution.threads import Sharing
from .._moments import weighted_mean
from ..subsets import Subsets
from ..subsets._on_device import DeviceSubsets
from . import gram, orthogonal, single_precision
from .cg import DONE, SLOW, UNPROBED, UNTRUSTED, Outcome, TooSlow, iterate
from .cg_operators import OWN, WHOLE, Batch, Rows, dual_batch, gram_batch, normal_batch
from .problem import Problem, Solution

__all__ = ["AnySubsets", "Solved", "kinds", "pays_for_gram", "solve", "solve_alone", "solve_batches", "warn_slow"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]
AnySubsets = Subsets | DeviceSubsets

NAME = "masked_cg"
TOL = 1e-9  # default relative error of a member's coefficients
MAX_STEPS = 1000
FAR = 1e-5  # spread of a column over its mean below which rank-one centring loses it; a Gram is centred row by row
SINGLE_FROM = 1e9  # n p^2 from which a Gram matrix in float32 and refinement are worth their rounds
STEPS = 32  # steps assumed before any were made
BATCH_BYTES = 5e8  # arrays of one batch of members
WORTH_ASKING = 2e9  # flops below which nobody waits, so nothing is handed over for its cost


class Solved(NamedTuple):
    """A batch of members, on the device: coefficients (p, q, k), intercepts (q, k), and what became of them."""

    members: NDArray[np.int64]
    mask: Any  # (p, k)
    coef: Any
    intercept: Any
    mean_y: Any  # (q, 1) or (q, k)
    outcome: Outcome


def solve(problem: Problem, features: Subsets, samples: Subsets | None, mapper: Sharing) -> Solution:
    """Coefficients of every member; the members that the iteration gives up come from a direct solver."""
    sizes, q = features.sizes, problem.Y.shape[1]
    out = Solution.empty(sizes, q, NAME)
    for kind, members in kinds(problem, features, samples).items():
        outcomes: list[tuple[Indices, Outcome]] = []
        with mapper.blas():
            for part in solve_batches(problem, features, samples, kind, members, mapper):
                _gather(out, features, part)
                outcomes.append((part.members, part.outcome))
        if mapper.report:
            mapper.report(len(members))
        _hand_over(problem, features, samples, mapper, kind, outcomes, out)
    return out


def kinds(problem: Problem, features: AnySubsets, samples: AnySubsets | None) -> dict[str, Indices]:
    """Members by their operator: "dual" for fewer rows than columns, "gram", "single" or "normal" for the others."""
    n = problem.shape[0]
    rows = (np.full(len(features), n) if samples is None else samples.sizes) - problem.fit_intercept
    wide = features.sizes > rows
    shared = samples is None and pays_for_gram(problem, int(np.count_nonzero(~wide)))
    thin = ("gram" if _keeps_double(problem) else "single") if shared else "normal"
    split = {"dual": np.flatnonzero(wide), thin: np.flatnonzero(~wide)}
    return {kind: members for kind, members in split.items() if len(members)}


def _keeps_double(problem: Problem) -> bool:
    """Whether a Gram matrix in float64 is there, or is made: sparse data, other devices, tables that take no time."""
    small = float(problem.shape[0]) * problem.shape[1] ** 2 < SINGLE_FROM
    return small or problem.has_moments or not problem.space.on_host or sp.issparse(problem.X)


def pays_for_gram(problem: Problem, k: int) -> bool:
    """Whether a Gram matrix, n p^2 flops and 8 p^2 bytes, is repaid by steps of 2 p^2 instead of 4 n p flops."""
    n, p = problem.shape
    if problem.has_moments:
        return True
    if sp.issparse(problem.X):  # sparse products run at about a tenth of the rate of dense ones
        return p <= 2000 and 2.0 * p**2 < 40.0 * problem.X.nnz
    if 8.0 * p**2 > _room(problem.space, 8.0 * p**2):
        return False
    return float(n) * p < STEPS * k * (4.0 * n - 2.0 * p)


def _room(space: Space, wanted: float) -> float:
    """Bytes that a Gram matrix may take; a device is asked, which takes a while, only where it might say no."""
    if space.on_host:
        return 0.5 * memory.available_bytes()
    return 2 * space.batch_bytes(np.inf) if wanted > BATCH_BYTES / 10 else np.inf


def solve_batches(
    problem: Problem,
    features: AnySubsets,
    samples: AnySubsets | None,
    kind: str,
    members: Indices,
    mapper: Sharing | None = None,
) -> Iterator[Solved]:
    """Solve members batch by batch, as many at a time as memory allows."""
    n, p = problem.shape
    prepared: Any
    if kind == "single":
        prepared = single_precision.prepare(problem, mapper)
    else:
        prepared = problem.moments if kind == "gram" else _rows(problem)
    probing = WHOLE if kind in ("gram", "single") and n >= 2 * p else OWN
    smallest = np.nan
    limit = _batch_size(problem, kind, samples is not None)
    todo = [members]
    while todo:
        here = todo.pop()
        if len(here) > limit:
            todo += [here[limit:], here[:limit]]
            continue
        probe = None if probing == WHOLE and np.isfinite(smallest) else probing
        try:
            solved = _solve_batch(problem, features, samples, kind, here, prepared, probe, smallest, mapper)
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


def _solve_batch(
    problem: Problem,
    features: AnySubsets,
    samples: AnySubsets | None,
    kind: str,
    members: Indices,
    prepared: Any,
    probing: str | None,
    smallest: float,
    mapper: Sharing | None,
) -> Solved:
    space = problem.space
    mask = _mask_there(features, members, space, mapper)
    outcome = Outcome.waiting(len(members))
    outcome.smallest[:] = smallest
    how: dict[str, Any] = {"max_steps": MAX_STEPS}
    tol = TOL if problem.tol is None else problem.tol
    # flops of a product, a column; single precision takes half the time of double
    step = {"single": 1.0, "gram": 2.0}.get(kind, 0.0) * problem.shape[1] ** 2 or 4.0 * prepared.entries
    if kind == "single":
        how["too_slow"] = _too_slow(problem, kind, features, samples, members, step, probing)
        coef, intercept = single_precision.solve_batch(problem, prepared, mask, tol, outcome, probing=probing, **how)
        return Solved(members, mask, coef, intercept, prepared.mean_y[:, None], outcome)
    batch: Batch
    if kind == "gram":
        batch = gram_batch(problem, mask, probing)
    else:
        row_mask = None if samples is None else _mask_there(samples, members, space, mapper)
        batch = {"normal": normal_batch, "dual": dual_batch}[kind](problem, prepared, mask, row_mask, probing)
        outcome.state[_holds_any(features, members, prepared.far)] = UNTRUSTED
    how["too_slow"] = _too_slow(problem, kind, features, samples, members, step, probing)
    how["space"] = space
    with np.errstate(over="ignore", invalid="ignore"):  # units too far apart for squares: handed over as not trusted
        X = iterate(batch.operator, batch.B, batch.member, batch.probe, outcome, tol=tol, **how)
        coef, intercept = batch.recover(X, space.xp)
    return Solved(members, mask, coef, intercept, batch.mean_y, outcome)


def _too_slow(
    problem: Problem,
    kind: str,
    features: AnySubsets,
    samples: AnySubsets | None,
    members: Indices,
    flops: float,
    probing: str | None,
) -> TooSlow:
    """Function that says whether the rest would cost more than factorisations; asked when a quarter of that is paid."""
    rows = problem.shape[0] if samples is None else float(samples.sizes[members].mean())
    direct = _direct_flops(kind, features.sizes[members], rows, on_host=problem.space.on_host)
    step, total = flops * (problem.Y.shape[1] + (probing == OWN)), direct.sum()

    def too_slow(left: Indices, expected: float, done: int) -> bool:
        price = total if len(left) == len(direct) else direct[left].sum()
        paid, to_come = step * len(direct) * done, step * len(left) * expected
        return bool(min(paid + to_come, price) > WORTH_ASKING and paid > price / 4 and to_come > price)

    return too_slow


def solve_alone(make: Callable[[Any, str], Batch], features: Subsets, members: Indices, problem: Problem) -> Solved:
    """Members of a batch that ``make(mask, probing)`` builds, where there is no direct solver to hand over to.

    Raises
    ------
    ValueError
        When members are not to be trusted on the normal equations or do not converge.
    """
    mask = _mask(features, members).T
    batch, outcome = make(mask, OWN), Outcome.waiting(len(members))
    tol = TOL if problem.tol is None else problem.tol
    how: dict[str, Any] = {"max_steps": MAX_STEPS, "space": problem.space}
    X = iterate(batch.operator, batch.B, batch.member, batch.probe, outcome, tol=tol, **how)
    left = outcome.state != DONE
    if left.any():
        raise ValueError(
            f"{left.sum()} of {len(members)} members have nearly dependent columns (or did not converge in {MAX_STEPS} "
            f"steps), and there are too many columns for a direct solver here. Take smaller members (max_features), "
            f"drop repeated columns, or give the columns to fit as an array."
        )
    coef, intercept = batch.recover(X, problem.space.xp)
    return Solved(members, mask, coef, intercept, batch.mean_y, outcome)


def _rows(problem: Problem) -> Rows:
    """Rows about their mean, with constant columns and those too far from zero for rank-one centring found once."""
    space, n = problem.space, problem.shape[0]
    X = sp.csr_array(problem.X) if sp.issparse(problem.X) else problem.X  # twice as fast as CSC here, both ways
    weight = space.xp.ones(n, dtype=space.dtype, device=space.device) if problem.weight is None else problem.weight
    if not problem.fit_intercept:
        rows = Rows(X, space.zeros(problem.shape[1]), space.xp)
        return replace(rows, spread=rows.squares(weight[:, None]))
    rows = Rows(X, weighted_mean(X, problem.weight, space), space.xp)
    spread = rows.squares(weight[:, None])
    far = space.get(spread[:, 0]) < FAR**2 * float(space.xp.sum(weight)) * space.get(rows.centre) ** 2
    constant = np.flatnonzero(far)
    constant = constant[[_holds_one_value(problem.X, j, space) for j in constant]]
    far[constant] = False
    alive = np.ones(len(far))
    alive[constant] = 0.0
    return replace(rows, spread=spread * space.put(alive)[:, None], far=far)


def _holds_one_value(X: Any, j: np.intp, space: Space) -> bool:
    """Whether a column is constant; its squares about the mean cannot say, they are rounding there."""
    column = X[:, [j]].toarray() if sp.issparse(X) else X[:, j]
    return bool(space.xp.all(column == column[0]))


def _holds_any(features: AnySubsets, members: Indices, items: Flags) -> Flags:
    """Which members hold any of some columns."""
    if not items.any():
        return np.zeros(len(members), dtype=bool)
    return np.array([items[features[i]].any() for i in members])


def _mask(subsets: Subsets, members: Indices, mapper: Sharing | None = None) -> Flags:
    """Boolean (k, items) of some members."""
    whole = len(members) == len(subsets)
    return (subsets if whole else subsets.take(members)).mask(None if mapper is None else mapper.without_blas)


def _mask_there(subsets: AnySubsets, members: Indices, space: Space, mapper: Sharing | None) -> Any:
    """Boolean (items, k) of some members, where the problem lives."""
    if isinstance(subsets, DeviceSubsets):
        return subsets.columns(members)
    return space.put(_mask(subsets, members, mapper)).T


def _batch_size(problem: Problem, kind: str, own_rows: bool) -> int:
    """Members at a time: about ten arrays of p (and four of n) numbers a column."""
    n, p = problem.shape
    numbers = 10 * p if kind in ("gram", "single") else 10 * p + (6 if own_rows or kind == "dual" else 2) * n
    return max(1, int(problem.space.batch_bytes(BATCH_BYTES) // (8 * numbers * (problem.Y.shape[1] + 1))))


def _direct_flops(kind: str, sizes: Indices, rows: float, *, on_host: bool) -> Array:
    """Flops of a direct solver for each member, times what a flop of a factorisation costs in flops of products.

    That is about 2 on the host. On a GPU batched factorisations are far behind (on an H200, 40 at 120 columns, 12 at
    1000 and 9 at 4000), and the first guess of the steps to come is often too high, so members stay four times longer.
    """
    m: Array = sizes.astype(np.float64)
    cubes: Array = m * m * m  # many times as fast as a power
    dear = 2.0 if on_host else 32 + 16_000 / np.maximum(m, 1.0)
    if kind in ("gram", "single"):
        return dear * cubes / 3
    if kind == "normal":
        return 2 * rows * m**2 + dear * cubes / 3
    return 2 * rows**2 * m + dear * rows**3 / 3


def _gather(out: Solution, features: Subsets, part: Solved) -> None:
    """Write coefficients of a batch on the host to their places."""
    sizes = features.sizes
    where = np.zeros(len(sizes), dtype=bool)
    where[part.members] = True
    picked = np.repeat(where, sizes)
    for t in range(part.coef.shape[1]):
        out.values[picked, t] = part.coef[:, t, :].T[part.mask.T]
    out.intercepts[part.members] = part.intercept.T


def _hand_over(
    problem: Problem,
    features: Subsets,
    samples: Subsets | None,
    mapper: Sharing,
    kind: str,
    outcomes: list[tuple[Indices, Outcome]],
    out: Solution,
) -> None:
    """Solve directly what the iteration gave up."""
    if not outcomes:
        return
    members = np.concatenate([m for m, _ in outcomes])
    state = np.concatenate([o.state for _, o in outcomes])
    error = np.concatenate([o.error for _, o in outcomes])
    left = np.sort(members[state != DONE])
    if not len(left):
        return
    if np.any(state == SLOW):
        warn_slow(error[state == SLOW], len(members), MAX_STEPS)
    shared = dict.fromkeys(("gram", "single"), gram.solve_shared)
    direct = {**shared, "normal": gram.solve_own, "dual": orthogonal.solve_wide}[kind]
    part = direct(problem, features.take(left), None if samples is None else samples.take(left), mapper)
    out.put(left, features.sizes, part, refitted=False)


def warn_slow(error: Array, k: int, steps: int) -> None:
    """Say how many members did not converge, and how far they came."""
    reached = f"{np.max(error):.1e}" if np.all(np.isfinite(error)) else "not known"
    messages.warn(
        f"{len(error)} of {k} members did not converge in {steps} steps of masked_cg (largest relative error of the "
        f"coefficients about {reached}); they were solved directly instead. Collinear columns cause this: "
        f"solver='auto' chooses for you, a larger tol may do.",
        ConvergenceWarning,
    )
