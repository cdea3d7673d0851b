r"""Laws of inclusion that follow the signal, in shares that left-out rows support.

Five laws (see ``signals``), from dense signals to sparse ones:

- **uniform** members, as in the paper;
- **ridge**-matched ones;
- **power**: spreads :math:`d_j^2 = |b_j|` from the coefficients b of tuned ridge regression, one step towards sparsity;
- **lasso**-matched: the same step repeated to its end;
- **sparse**: :math:`d_j^2 = b_j^2` from the lasso's coefficients, one step beyond it.

**Honest.** Coefficients, and with them all probabilities, are found anew in every fold from the rows outside it. Only
penalties, one number for each law, are shared: those with the least error over all folds (ridge regression's is tuned
as ever, by leave-one-out). Laws are judged by the penalised fits that their members mimic, which have no Monte-Carlo
noise; uniform members mimic none and are fitted.

**Shares.** Non-negative weights that sum to one and give the left-out predictions of the laws the least squared error
(stacking) are the shares that the laws have of the members: the plain mean of the members is the stacked prediction.
Few rows determine them badly, so they are averaged over draws of the error products that n rows could as well have
given, :math:`W_n(S)/n` with S the observed ones (a parametric bootstrap; status: heuristic). Then they are drawn
towards ridge-matched members, all the way where the mixture's gain, without the fold that gives most of it, is half a
standard error below zero, and not at all from half a standard error above: a gain that rests on few rows is none.

Everything is made of the products of errors in every fold, so rows in memory, blocks and devices give the same choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from ..subsets import Subsets, laws_of_members
from .curve import RiskCurve
from .grounds import Grounds, Testing, Training
from .inclusion import blas_for, brought_to
from .paths import Paths
from .signals import Penalised, Signal
from .trials import LARGEST_SHARE, Orders, Trial, curve_of_trials, excess, solved

__all__ = ["LAWS", "Mixed", "mix", "repeats_for"]

Array = NDArray[np.float64]
T = TypeVar("T")

LAWS = ("ridge", "uniform", "power", "lasso", "sparse")
RIDGE, UNIFORM, POWER, _, SPARSE = range(len(LAWS))
AROUND = 10.0 ** np.array([1.0, 0.25, -0.5]), 10.0 ** np.array([-1.25, -2.0])  # of ridge regression's penalty
SHARES = np.geomspace(1.0, 2e-3, 21)  # of the lasso's largest penalty
DRAWS = 24  # of the products of errors
DAMPED = (-0.5, 0.5)  # standard errors of the gain between which shares are drawn to ridge-matched members
NEGLIGIBLE = 0.02  # share of the members that is not worth a law
PAIRS, TOLD = 30, 15  # of members at most in a fold: uniform ones, and those from which the mixture's error is told
WORK = 1e8  # operations that they take, about
WORTH_A_THREAD = 5e6  # operations of a fold, about
KEPT = 0.5  # probability from which on the sparse law keeps a column


@dataclass(frozen=True)
class Mixed:
    """Laws with their shares of the members, the error of such an ensemble, and what the sparse law keeps."""

    shares: Array  # (laws,) of those that have any
    probabilities: Array  # (laws, p)
    names: tuple[str, ...]
    curve: RiskCurve | None  # of one size, from the folds; None where ridge-matched or uniform members are all
    residual: Array | None  # (n, q) of left-out rows, where these are known
    kept: NDArray[np.bool_]  # (p,) columns that the sparse law keeps
    stability: Array  # (p,) share of the folds in which it does


def repeats_for(n: int) -> int:
    """Times that rows in memory are left out: with few of them, the choice of folds would decide."""
    return 3 if n < 100 else 1


def mix(grounds: Grounds, penalty: float, size: int, paths: Paths, scale: float = 1.0) -> Mixed:
    """Shares of the laws; `penalty` is ridge regression's, in units, and `size` that of uniform members.

    Laws are compared before the scale, and the curve that is told is that of members times it.
    """
    with blas_for((grounds.whole.n_rows, len(grounds.whole.variance))):
        return _mix(grounds, penalty, size, paths, scale)


def _mix(grounds: Grounds, penalty: float, size: int, paths: Paths, scale: float) -> Mixed:
    unit = np.sqrt(grounds.whole.variance)
    unit = np.where(unit > 0, unit, 1.0)
    orders = Orders.of(len(unit), size, paths.seed, PAIRS, WORK)
    n = grounds.whole.n_rows
    folds = [_Fold(_Laws(train, unit, orders, size, n, penalty), test) for train, test in grounds.folds]
    whole = _Laws(grounds.whole, unit, orders, size, n, penalty)
    _ = whole.signal  # before threads ask for parts of it
    field = _Field(folds, whole, grounds.repeats, paths)
    tuned = field.tuned()
    shares = field.shares(tuned)
    used = np.flatnonzero(shares).tolist()
    curve, residual = None, None
    if shares[[RIDGE, UNIFORM]].max() < 1:
        tested = field.tested(tuned, shares)
        drawn = float(np.mean([trial.features.sizes.mean() for _, trial in tested]))
        curve = curve_of_trials(drawn, len(unit), tested, paths.design, scale)
        residual = _left_out(tested, n)
    return Mixed(
        shares[used],
        np.stack([whole.probabilities(tuned, law) for law in used]),
        tuple(LAWS[law] for law in used),
        curve,
        residual,
        whole.probabilities(tuned, SPARSE) >= KEPT,
        np.mean([fold.laws.probabilities(tuned, SPARSE) >= KEPT for fold in folds], axis=0),
    )


@dataclass(frozen=True)
class _Tuned:
    """One number for each law but ridge regression."""

    power: float  # penalties in units
    lasso: int  # position among the shares of the largest penalty
    sparse: float


@dataclass(frozen=True)
class _Laws:
    """The laws on some rows."""

    rows: Training
    unit: Array
    orders: Orders
    size: int  # of uniform members on all rows
    n_all: int
    penalty: float  # of ridge regression, in units

    @cached_property
    def signal(self) -> Signal:
        return self.rows.signal(self.unit)

    @cached_property
    def lasso_path(self) -> Array:
        """(penalties, p, q)."""
        return self.signal.lasso(SHARES)

    @cached_property
    def uniform(self) -> Trial:
        return self.orders.uniform(self.rows, np.sqrt(self.rows.n_rows / self.n_all) * self.size)

    @cached_property
    def ridge(self) -> Penalised:
        return self.signal.penalised(np.ones(len(self.unit)))

    @cached_property
    def ridge_coef(self) -> Array:
        """(p, q)."""
        return np.asarray(self.ridge.coefficients(np.array([self.penalty]))[0])

    @cached_property
    def power(self) -> Penalised:
        return self.signal.penalised(_powers(self.ridge_coef, 1.0))

    def of_lasso(self, at: int, q: float) -> Penalised:
        """With powers of the lasso's coefficients."""
        if (at, q) not in self._of_lasso:
            self._of_lasso[at, q] = self.signal.penalised(_powers(self.lasso_path[at], q))
        return self._of_lasso[at, q]

    @cached_property
    def _of_lasso(self) -> dict[tuple[int, float], Penalised]:
        return {}

    def mimicked(self, tuned: _Tuned) -> Array:
        """Coefficients (laws, p, q), of standardised columns, that the laws but the uniform one mimic."""
        power = self.power.coefficients(np.array([tuned.power]))[0]
        sparse = self.of_lasso(tuned.lasso, 2.0).coefficients(np.array([tuned.sparse]))[0]
        return np.stack([self.ridge_coef, power, self.lasso_path[tuned.lasso], sparse])

    def probabilities(self, tuned: _Tuned, law: int) -> Array:
        """Of a law, clear of the interpolation peak and enough for one column."""
        p, most = len(self.unit), LARGEST_SHARE * (self.rows.n_rows - self.rows.centred)
        if law == UNIFORM:
            return np.full(p, max(1, min(p, round(self.uniform.features.sizes.mean()))) / p)
        if (law, tuned) not in self._probabilities:
            self._probabilities[law, tuned] = self._matched(tuned, law)
        chance = self._probabilities[law, tuned]
        total = float(chance.sum())
        return chance if 1.0 <= total <= most else brought_to(chance, float(np.clip(total, 1.0, max(1.0, most))))

    @cached_property
    def _probabilities(self) -> dict[tuple[int, _Tuned], Array]:
        return {}

    def _matched(self, tuned: _Tuned, law: int) -> Array:
        if law == RIDGE:
            return self.ridge.probabilities(self.penalty)
        if law == POWER:
            return self.power.probabilities(tuned.power)
        if law == SPARSE:
            return self.of_lasso(tuned.lasso, 2.0).probabilities(tuned.sparse)
        penalty = self.signal.lasso_penalty(self.lasso_path[tuned.lasso], SHARES[tuned.lasso])
        return self.of_lasso(tuned.lasso, 1.0).probabilities(penalty)

    def mixture(self, tuned: _Tuned, shares: Array) -> Trial:
        """An ensemble in which the laws have their shares."""
        used, orders = np.flatnonzero(shares).tolist(), self.orders.take(slice(TOLD))
        law = laws_of_members(shares[used], len(orders))
        own = {used[i]: np.flatnonzero(law == i) for i in range(len(used))}
        drawn = [orders.take(pairs).drawn(self.probabilities(tuned, i)) for i, pairs in own.items() if len(pairs)]
        return solved(self.rows, Subsets.joined(drawn), None)


@dataclass(frozen=True)
class _Fold:
    """Laws on the rows outside a fold, and its rows."""

    laws: _Laws
    test: Testing

    def errors(self, coefs: Array) -> Array:
        """Of coefficients (count, p, q) of standardised columns."""
        return self.test.errors(coefs / self.laws.unit[:, None])

    def products(self, tuned: _Tuned) -> Array:
        """Mean products of errors (laws, laws), as if there were infinitely many uniform members."""
        laws = self.laws
        mimicked = laws.mimicked(tuned) / laws.unit[:, None]
        found = self.test.products(np.insert(mimicked, UNIFORM, laws.uniform.coef, axis=0))
        found[UNIFORM, UNIFORM] -= excess(self.test, laws.uniform)
        return found


@dataclass(frozen=True)
class _Field:
    """All folds: what is found in them, thread by thread."""

    folds: list[_Fold]
    whole: _Laws
    repeats: int
    paths: Paths

    @cached_property
    def weight(self) -> Array:
        return np.array([fold.test.weight.sum() for fold in self.folds])

    def each(self, work: Callable[[_Fold], T]) -> list[T]:
        """In every fold; small ones are not worth a thread."""
        n, p = self.whole.n_all, len(self.whole.unit)
        if n * p * min(n, p) < WORTH_A_THREAD:
            return [work(fold) for fold in self.folds]
        share = self.paths.mapper.quiet()
        return share(lambda start, _: work(self.folds[start]), len(self.folds), chunk=1)

    def tuned(self) -> _Tuned:
        """Penalties with the least error over all folds."""
        first = self.whole.penalty * AROUND[0]

        def look(fold: _Fold) -> tuple[Array, Array]:
            return fold.errors(fold.laws.lasso_path), fold.errors(fold.laws.power.coefficients(first))

        lasso, power = zip(*self.each(look), strict=True)
        at = self._least(lasso, len(self.whole.lasso_path))
        sparse = self.each(lambda fold: fold.errors(fold.laws.of_lasso(at, 2.0).coefficients(first)))
        return _Tuned(
            self._penalty(power, lambda laws: laws.power),
            at,
            self._penalty(sparse, lambda laws: laws.of_lasso(at, 2.0)),
        )

    def _penalty(self, errors: Sequence[Array], law: Callable[[_Laws], Penalised]) -> float:
        """The best of the first penalties; where that is the smallest, of the further ones as well."""
        first, further = (self.whole.penalty * around for around in AROUND)
        best = self._least(errors)
        if best < len(first) - 1:
            return float(first[best])
        more = self.each(lambda fold: fold.errors(law(fold.laws).coefficients(further)))
        both = [np.concatenate(pair) for pair in zip(errors, more, strict=True)]
        return float(np.concatenate([first, further])[self._least(both)])

    def _least(self, errors: Sequence[Array], most: int | None = None) -> int:
        """Position of the least error, as far as all folds have gone."""
        count = min(len(e) for e in errors)
        return int(np.argmin(self.weight @ np.stack([e[: min(count, most or count)] for e in errors])))

    def shares(self, tuned: _Tuned) -> Array:
        """Of the laws, (laws,)."""
        products = np.stack(self.each(lambda fold: fold.products(tuned)))
        n_rows = sum(fold.test.n_rows for fold in self.folds) // self.repeats
        found = _stacked(products, self.weight, n_rows, self.paths.seed)
        found = _damped(found, products, self.weight, n_rows, self.repeats)
        found = np.where(found < NEGLIGIBLE, 0.0, found)
        return np.asarray(found / found.sum())

    def tested(self, tuned: _Tuned, shares: Array) -> list[tuple[Testing, Trial]]:
        """Ensembles of the mixture with the rows that they are judged by."""
        return self.each(lambda fold: (fold.test, fold.laws.mixture(tuned, shares)))


def _powers(coef: Array, q: float) -> Array:
    """|b_j|^q of coefficients (p, targets), the largest one."""
    b = np.linalg.norm(coef, axis=1)
    top = float(b.max(initial=0.0))
    return (b / top) ** q if top > 0 else np.zeros(len(b))


def _stacked(products: Array, weight: Array, n_rows: int, seed: int) -> Array:
    """Mean over draws of the weights of least error."""
    rng, S = np.random.default_rng([seed, len(LAWS)]), np.tensordot(weight / weight.sum(), products, axes=1)
    root = _root(S)
    count = max(n_rows, len(S))
    found = []
    for _ in range(DRAWS):
        # Bartlett: the lower factor of W_n(S)
        T = np.tril(rng.standard_normal(S.shape), -1)
        np.einsum("ii->i", T)[:] = np.sqrt(rng.chisquare(count - np.arange(len(S))))
        found.append(_weights(root @ T))
    return np.asarray(np.mean(found, axis=0))


def _root(S: Array) -> Array:
    """A square root of a matrix that may be singular, or indefinite by what was taken off its diagonal."""
    values, vectors = np.linalg.eigh(S)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 1e-12 * max(float(values[-1]), 1e-300))))


def _weights(root: Array) -> Array:
    """Weights at least zero that sum to one, of the least w' R R' w: least squares with one heavy row."""
    heavy = 1e3 * float(np.sqrt(np.mean(np.sum(root**2, axis=1))))
    if not heavy > 0:
        return np.asarray(np.eye(len(root))[RIDGE])
    w, _ = nnls(np.vstack([root.T, np.full(len(root), heavy)]), np.r_[np.zeros(root.shape[1]), heavy])
    return np.asarray(w / w.sum())


def _damped(shares: Array, products: Array, weight: Array, n_rows: int, repeats: int) -> Array:
    """Shares drawn towards ridge-matched members as far as their gain is within its noise."""
    alone = np.eye(len(shares))[RIDGE]
    gains = weight * np.einsum("i,fij,j->f", alone - shares, products, alone + shares)
    kept = np.ones(len(gains), dtype=bool)
    for part in np.array_split(np.arange(len(gains)), repeats):
        kept[part[np.argmax(gains[part])]] = False
    low, high = DAMPED
    lead = min(_lead(shares, products, weight, n_rows), _lead(shares, products, weight, n_rows, kept))
    trust = float(np.clip((lead - low) / (high - low), 0.0, 1.0))
    return np.asarray(trust * shares + (1 - trust) * alone)


def _lead(shares: Array, products: Array, weight: Array, n_rows: int, kept: NDArray[np.bool_] | None = None) -> float:
    """Gain over ridge-matched members in standard errors, as ``folds.paired_difference`` tells them, of some folds."""
    share = weight if kept is None else weight * kept
    S = np.tensordot(share / share.sum(), products, axes=1)
    alone = np.eye(len(shares))[RIDGE]
    u, v = alone - shares, alone + shares
    gain = float(u @ S @ v)
    spread = max(float(u @ S @ u), 0.0) * float(v @ S @ v) + gain**2
    n = n_rows * float(share.sum() / weight.sum())
    return gain / np.sqrt(spread / n) if spread > 0 else 0.0


def _left_out(tested: list[tuple[Testing, Trial]], n: int) -> Array | None:
    """Residuals of every row, averaged over the times that it was left out; None where they are not all known."""
    total, times = np.zeros((n, tested[0][1].values.shape[1])), np.zeros(n)
    for test, trial in tested:
        residual = test.left_out(trial.coef)
        if residual is None or test.rows is None:
            return None
        np.add.at(total, test.rows, residual)
        np.add.at(times, test.rows, 1)
    return total / times[:, None] if times.all() else None
