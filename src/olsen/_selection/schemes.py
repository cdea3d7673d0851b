r"""Sampling schemes and their shares: what the default model is made of.

Penalised least squares with spreads d of standardised columns,
:math:`\min_b \|y - Xb\|^2 + \lambda \sum_j b_j^2 / d_j`, is the mean of all determinantal members with these spreads
(``subsets.Determinantal``; status: theorem). Four schemes, from dense signals to sparse ones, are such fits:

- **ridge**: :math:`d_j = 1`;
- **power**: :math:`d_j = |b_j|` from the coefficients b of ridge regression, one step of reweighting;
- **lasso**: :math:`d_j = |b_j|` from the lasso's own coefficients, a fixed point of that step;
- **sparse**: :math:`d_j = b_j^2` from the lasso's coefficients, one step beyond.

Besides there are **uniform** members, as in the paper, and **nothing**, the mean target.

**Choice.** All that looks at y is repeated in every fold, from the rows outside it; only penalties, one number for each
scheme, are those of least error over all folds. Shares are weights of least squared error of the left-out predictions
(stacking), averaged over draws :math:`W_n(S)/n` of the products S of errors that n rows could as well have given, drawn
towards a mixture of ridge and nothing as far as their gain over it is within its noise, and to nothing as far as the
gain over that is (status: heuristic; measured in ``docs/tuning.md``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from .._execution.threads import Sharing, one_blas_thread
from .._members.problem import Units
from ..subsets import Subsets
from .combining import simplex_weights
from .fold_data import Fold, FoldData
from .signals import NAMES, NOTHING, POWER, RIDGE, SPARSE, UNIFORM, Penalties, SchemeFits

__all__ = ["Choice", "FoldFit", "Scheme", "UniformMembers", "choose_schemes"]

Array = NDArray[np.float64]
T = TypeVar("T")

DRAWS = 24  # of the products of errors
GATE = (-0.5, 0.5)  # standard errors of the gain between which shares are drawn to ridge and nothing
BEYOND = 1.5  # standard errors by which nothing must lose without its best folds, for these to be left out
NEGLIGIBLE = 0.02  # share that is not worth a scheme
SELECTED = 0.5  # probability from which on the sparse scheme keeps a column
STEPS_BEYOND = 3  # of the lasso's best penalty in the first repeat, that later ones try
WORTH_A_THREAD = 5e6  # operations of a fold, about
PAIRS = (15, 30)  # of uniform members that judge in a fold, at least and at most ...
WORK, MOST_DRAWN = 1e8, 6e4  # ... as many as take so many operations, and columns to draw from
LARGEST_SHARE = 0.85  # of the rows: members stay clear of the interpolation peak
FEW_ROWS = 300  # below which uniform members are judged in all repeats
SEED = 24


@dataclass(frozen=True)
class Scheme:
    """A penalised fit with its share: the mean of all determinantal members with these spreads."""

    name: str
    share: float
    spreads: Array  # (p,) of the columns as given
    penalty: float
    inclusion: Array  # (p,) probability of every column to be in a member


@dataclass(frozen=True)
class FoldFit:
    """The chosen mixture without a fold of rows, and how far it is off for them."""

    coef: Array  # (p,)
    intercept: float
    rows: NDArray[np.int64] | None
    residual: Array | None  # (rows,)


@dataclass(frozen=True)
class UniformMembers:
    """Pairs of uniform members that judge their scheme: both ends of random orders of the columns."""

    orders: NDArray[np.int64]  # (pairs, p)
    size: int  # on all rows

    @classmethod
    def of(cls, n_columns: int, size: int) -> UniformMembers:
        """As many as are cheap: more of them are better judges of small differences."""
        pairs = int(np.clip(min(WORK / max(1.0, size) ** 3, MOST_DRAWN / n_columns), *PAIRS))
        rng = np.random.default_rng(SEED)
        return cls(rng.permuted(np.tile(np.arange(n_columns), (pairs, 1)), axis=1), size)

    def fit(self, fold: Fold, share: float) -> tuple[Array, float]:
        """Mean coefficients (p,) of members for a share of the rows, and the error of infinitely many of them.

        With the mean error P of a pair's mean and that of k members R, infinitely many have R - 2 (P - R) / (k - 2).
        """
        m = max(1, min(round(np.sqrt(share) * self.size), int(LARGEST_SHARE * (fold.signal.n_rows - 1))))
        pairs, p = self.orders.shape
        columns = np.sort(np.concatenate([self.orders[:, :m], self.orders[:, -m:]]), axis=1)  # one half, the other
        features = Subsets(p, m * np.arange(2 * pairs + 1, dtype=np.int64), columns.ravel())
        coefs = np.zeros((2 * pairs, p))
        np.put_along_axis(coefs, columns, fold.signal.members(features)[:, 0].reshape(2 * pairs, m), axis=1)
        mean = coefs.mean(axis=0)
        own, pair = fold.errors(mean[None])[0], fold.errors((coefs[:pairs] + coefs[pairs:]) / 2).mean()
        return mean, float(own - 2 * (pair - own) / (2 * pairs - 2))


@dataclass(frozen=True)
class Choice:
    """Schemes with their shares."""

    schemes: tuple[Scheme, ...]  # penalised fits
    uniform: float  # share of uniform members
    nothing: float  # share of the mean target
    mse: float
    standard_error: float
    fits: list[FoldFit]  # but for uniform members
    selected: NDArray[np.bool_]  # (p,) columns that the sparse scheme keeps
    selection_frequency: Array  # (p,) share of the folds in which it does
    beyond_first: float = 0.0  # error of ridge regression in all repeats less that in the first
    enlargement: float = 1.0  # of residuals of the folds, to the estimated error

    @classmethod
    def of_nothing(cls, data: FoldData) -> Choice:
        """Where no column varies: the mean target."""
        p = len(data.unit)
        fits = _fold_fits(data.folds[: len(data.folds) // data.repeats], [np.zeros(p)] * len(data.folds))
        weight = np.array([fold.weight for fold in data.folds])
        mse = float(weight @ [fold.errors(np.zeros((1, p)))[0] for fold in data.folds] / weight.sum())
        none = np.zeros(p, dtype=bool)
        return cls((), 0.0, 1.0, mse, _standard_error(fits, mse, data.n_rows), fits, none, np.zeros(p))

    def in_users_units(self, units: Units) -> Choice:
        """The same where X and y were divided by units; the design keeps those of X."""
        unit = units.y  # a float to a power raises where a product is infinite
        fits = [
            FoldFit(
                units.coefficients(f.coef),
                f.intercept * unit,
                f.rows,
                None if f.residual is None else f.residual * unit,
            )
            for f in self.fits
        ]
        return replace(self, mse=self.mse * unit * unit, standard_error=self.standard_error * unit * unit, fits=fits)

    @property
    def shares(self) -> dict[str, float]:
        """By name."""
        found = {scheme.name: scheme.share for scheme in self.schemes}
        return {**found, **{n: s for n, s in (("uniform", self.uniform), ("nothing", self.nothing)) if s > 0}}


def choose_schemes(
    data: FoldData,
    penalty: float,
    uniform_size: int,
    sharing: Sharing,
    *,
    only_ridge: bool = False,
    scale: float | None = None,
) -> Choice:
    """Schemes, penalties and shares for one target; `penalty` is ridge regression's as tuned on all rows, see there.

    A `scale` that is given leaves no share to nothing.
    """
    work = _InFolds(data, penalty * data.whole.weight, sharing)
    whole, penalties = work.fits[-1], work.penalties()
    chosen = work.each(lambda fold, fits: fits.chosen(penalties))
    uniform = None if only_ridge else UniformMembers.of(len(data.unit), uniform_size)
    products, coefs = work.products(chosen, uniform)
    usable = np.array([True, *[not only_ridge] * 4, scale is None and not only_ridge])
    usable[POWER:UNIFORM] &= [whole.spread(i, penalties).any() for i in range(POWER, UNIFORM)]  # else none to draw
    shares, optimism = _shares(products, work.weight, data, usable)
    used = [i for i in range(UNIFORM) if shares[i] > 0]
    inclusion = work.inclusion([*used, SPARSE], penalties)
    found = [(i, included, *whole.spreads(i, penalties)) for i, included in zip(used, inclusion, strict=False)]
    schemes = [Scheme(NAMES[i], float(shares[i]), d / data.unit**2, level, alpha) for i, alpha, d, level in found]
    S = np.tensordot(work.weight / work.weight.sum(), products, axes=1)
    scaled = shares if scale is None else scale * shares + (1 - scale) * np.eye(len(NAMES))[NOTHING]
    mse = max(0.0, float(scaled @ S @ scaled)) + optimism
    fits = _fold_fits(data.folds, [scaled @ every for every in coefs])
    kept = inclusion[-1] >= SELECTED
    often = np.mean(work.each(lambda fold, fits: fits.inclusion(SPARSE, penalties) >= SELECTED), axis=0)
    first = np.tensordot(work.weight[: work.first] / work.weight[: work.first].sum(), products[: work.first], axes=1)
    return Choice(
        tuple(schemes), float(shares[UNIFORM]), float(shares[NOTHING]), mse, _standard_error(fits, mse, data.n_rows),
        fits, kept, often, float(S[RIDGE, RIDGE] - first[RIDGE, RIDGE]), _enlargement(fits, mse),
    )  # fmt: skip


@dataclass(frozen=True)
class _InFolds:
    """The schemes in all folds, thread by thread."""

    data: FoldData
    ridge_penalty: float
    sharing: Sharing

    @cached_property
    def weight(self) -> Array:
        return np.array([fold.weight for fold in self.data.folds])

    @cached_property
    def first(self) -> int:
        """Folds of the first repeat."""
        return len(self.data.folds) // self.data.repeats

    @cached_property
    def fits(self) -> list[SchemeFits]:
        """Of every fold, and last of all rows.

        After the first repeat, paths of the lasso go only a little beyond its best penalty there.
        """
        signals = [*(fold.signal for fold in self.data.folds), self.data.whole]
        first = [SchemeFits(signal, self.ridge_penalty) for signal in signals[: self.first]]
        steps = self._least(self._map(lambda fold, fits: fold.errors(fits.lasso), first)) + 1 + STEPS_BEYOND
        later = [SchemeFits(signal, self.ridge_penalty, steps) for signal in signals[self.first :]]
        self._map(lambda _, fits: fits.lasso, later)
        return first + later

    def each(self, work: Callable[[Fold, SchemeFits], T]) -> list[T]:
        """In every fold."""
        return self._map(work, self.fits)

    def _map(self, work: Callable[[Fold, SchemeFits], T], fits: list[SchemeFits]) -> list[T]:
        """In some folds; small ones are not worth a thread."""
        n, p = self.data.n_rows, len(self.data.unit)
        pairs = list(zip(self.data.folds, fits, strict=False))
        if n * p * min(n, p) < WORTH_A_THREAD:
            with one_blas_thread():  # held once for all of them
                return [work(*pair) for pair in pairs]
        return self.sharing.quiet()(lambda start, _: work(*pairs[start]), len(pairs), chunk=1)

    def inclusion(self, schemes: list[int], found: Penalties) -> list[Array]:
        """Of every column in members of some schemes on all rows."""
        return self.sharing.quiet()(lambda i, _: self.fits[-1].inclusion(schemes[i], found), len(schemes), chunk=1)

    def penalties(self) -> Penalties:
        """Those of least error over all folds; of the lasso's, as far as its path on all rows goes."""
        steps = len(self.fits[-1].lasso)
        lasso, power = zip(
            *self.each(lambda fold, fits: (fold.errors(fits.lasso[:steps]), fold.errors(fits.power))), strict=True
        )
        at = self._least(lasso)
        sparse = self.each(lambda fold, fits: fold.errors(fits.sparse(at)))
        return Penalties(self._least(power), at, self._least(sparse))

    def _least(self, errors: list[Array] | tuple[Array, ...]) -> int:
        """Position of the least error, as far as all folds have gone."""
        count = min(len(e) for e in errors)
        return int(np.argmin(self.weight[: len(errors)] @ np.stack([e[:count] for e in errors])))

    def products(self, chosen: list[Array], uniform: UniformMembers | None) -> tuple[Array, list[Array]]:
        """Mean products of errors (folds, schemes, schemes), and coefficients (schemes, p) of every fold.

        Of many rows uniform members are fitted in the first repeat only; in the others they have the same lead.
        """
        known = len(self.data.folds) if self.data.n_rows < FEW_ROWS else self.first
        found, coefs = [], []
        for f, fold in enumerate(self.data.folds):
            own, error = chosen[f][RIDGE], None
            if uniform is not None and f < known:
                own, error = uniform.fit(fold, fold.signal.n_rows / self.data.n_rows)
            every = np.concatenate([chosen[f], own[None], np.zeros((1, len(own)))])
            S = fold.products(every)
            if error is not None:
                S[UNIFORM, UNIFORM] = error
            found.append(S)
            coefs.append(every)
        first = np.tensordot(self.weight[:known] / self.weight[:known].sum(), found[:known], axes=1)
        lead = first[UNIFORM] - first[RIDGE]
        for S in found[known:]:
            S[UNIFORM] = S[RIDGE] + lead
            S[:, UNIFORM] = S[UNIFORM]
            S[UNIFORM, UNIFORM] = S[RIDGE, RIDGE] + first[UNIFORM, UNIFORM] - first[RIDGE, RIDGE]
        return np.stack(found), coefs[:known]


def _fold_fits(folds: list[Fold], coefs: list[Array]) -> list[FoldFit]:
    """The mixture without each fold, as far as all of it is known."""
    fits = []
    for fold, coef in zip(folds, coefs, strict=False):
        residual = fold.residuals(coef[None])
        fits.append(FoldFit(*fold.in_users_units(coef), fold.rows, None if residual is None else residual[:, 0]))
    return fits


def _shares(products: Array, weight: Array, data: FoldData, usable: NDArray[np.bool_]) -> tuple[Array, float]:
    """Of the schemes, (schemes,), and how much their error is underestimated by having chosen them."""
    n = data.n_rows
    S = np.tensordot(weight / weight.sum(), products, axes=1)
    fits = np.flatnonzero(usable & (np.arange(len(NAMES)) != NOTHING))
    shares = np.zeros(len(NAMES))
    shares[fits], optimism = _stacked(S[np.ix_(fits, fits)], n)
    nothing, ridge = np.eye(len(NAMES))[[NOTHING, RIDGE]]
    steady = _without_best(nothing, ridge, products, weight, data.repeats)
    with_ridge = _lead(ridge, nothing, products, steady, n * float(steady.sum() / weight.sum())) > BEYOND
    base = _base(np.tensordot(steady / steady.sum(), products, axes=1) if with_ridge else S, usable)
    shares = base + _trust(shares, base, products, weight, n, data.repeats) * (shares - base)
    if usable[NOTHING]:
        steady = _without_best(nothing, shares, products, weight, data.repeats)
        lead = _lead(shares, nothing, products, steady, n * float(steady.sum() / weight.sum())) - BEYOND
        lead = max(lead, _lead(shares, nothing, products, weight, n))
        shares = nothing + np.clip(lead, 0.0, 1.0) * (shares - nothing)
    shares = np.where(shares < NEGLIGIBLE, 0.0, shares)
    return shares / shares.sum(), optimism


def _stacked(S: Array, n_rows: int) -> tuple[Array, float]:
    """Mean over draws of the weights of least error, and the mean of what these are too small by in their own draw."""
    values, vectors = np.linalg.eigh(S)
    # the symmetric root: signs of eigenvectors are free, and without the second factor each would be another draw
    root = vectors * np.sqrt(np.maximum(values, 1e-12 * max(float(values[-1]), 1e-300))) @ vectors.T
    rng, count = np.random.default_rng(SEED), max(n_rows, len(S))
    found, optimism = [], []
    for _ in range(DRAWS):
        draw = np.tril(rng.standard_normal(S.shape), -1)  # Bartlett: the lower factor of W_n(S)
        np.einsum("ii->i", draw)[:] = np.sqrt(rng.chisquare(count - np.arange(len(S))))
        drawn = root @ draw / np.sqrt(count)
        w = simplex_weights(drawn)
        found.append(w)
        optimism.append(float(w @ S @ w - np.sum((drawn.T @ w) ** 2)))
    return np.mean(found, axis=0), max(0.0, float(np.mean(optimism)))


def _base(S: Array, usable: NDArray[np.bool_]) -> Array:
    """Ridge and nothing in the proportion of least error."""
    base = np.zeros(len(NAMES))
    apart = S[RIDGE, RIDGE] - 2 * S[RIDGE, NOTHING] + S[NOTHING, NOTHING]
    x = (S[NOTHING, NOTHING] - S[RIDGE, NOTHING]) / apart if usable[NOTHING] and apart > 0 else 1.0
    base[RIDGE] = min(max(float(x), 0.0), 1.0)
    base[NOTHING] = 1 - base[RIDGE]
    return base


def _trust(shares: Array, base: Array, products: Array, weight: Array, n_rows: int, repeats: int) -> float:
    """How far the gain over the base is beyond its noise, also without the best fold of each repeat."""
    steady = _without_best(shares, base, products, weight, repeats)
    lead = _lead(shares, base, products, weight, n_rows)
    lead = min(lead, _lead(shares, base, products, steady, n_rows * float(steady.sum() / weight.sum())))
    return float(np.clip((lead - GATE[0]) / (GATE[1] - GATE[0]), 0.0, 1.0))


def _without_best(shares: Array, base: Array, products: Array, weight: Array, repeats: int) -> Array:
    """Weights of the folds without the one, in each repeat, that gives most of the gain over other shares.

    A gain that rests on one fold may rest on one row.
    """
    gains = weight * np.einsum("i,fij,j->f", base - shares, products, base + shares)
    steady = weight.copy()
    for part in np.array_split(np.arange(len(gains)), repeats):
        if len(part) > 1:
            steady[part[np.argmax(gains[part])]] = 0.0
    return steady


def _lead(shares: Array, base: Array, products: Array, weight: Array, n_rows: float) -> float:
    """Gain over other shares in standard errors.

    With errors e and e' of two ensembles at a left-out row, u = e - e' and v = e + e', the difference of their squares
    is u v, with variance mean(u^2) mean(v^2) + mean(u v)^2 where u and v are Gaussian.
    """
    S = np.tensordot(weight / weight.sum(), products, axes=1)
    u, v = base - shares, base + shares
    gain = float(u @ S @ v)
    spread = max(float(u @ S @ u), 0.0) * float(v @ S @ v) + gain**2
    return gain / float(np.sqrt(spread / n_rows)) if spread > 0 else 0.0


def _enlargement(fits: list[FoldFit], mse: float) -> float:
    squares = np.concatenate([np.zeros(0), *(fit.residual**2 for fit in fits if fit.residual is not None)])
    return float(np.sqrt(max(1.0, mse / squares.mean()))) if squares.any() else 1.0


def _standard_error(fits: list[FoldFit], mse: float, n_rows: int) -> float:
    """Of the error; from moments its order is known, that of Gaussian errors."""
    if any(fit.residual is None for fit in fits):
        return mse * float(np.sqrt(2 / n_rows))
    squares = np.concatenate([np.asarray(fit.residual) ** 2 for fit in fits])
    return float(squares.std() / np.sqrt(n_rows))
