r"""Sampling schemes and their shares: what the default model is made of.

Penalised least squares with spreads d of standardised columns,
:math:`\min_b \|y - Xb\|^2 + \lambda \sum_j b_j^2 / d_j`, is the mean of all determinantal members with these spreads
(``subsets.Determinantal``; status: theorem). Four schemes, from dense signals to sparse ones, are such fits:

- **ridge**: :math:`d_j = 1`;
- **power**: :math:`d_j = |b_j|` from the coefficients b of ridge regression, one step of reweighting;
- **lasso**: :math:`d_j = |b_j|` from the lasso's own coefficients, a fixed point of that step;
- **sparse**: :math:`d_j = b_j^2` from the lasso's coefficients, one step beyond.

There are also **uniform** members, as in the paper, and **nothing**, the mean target.

**Choice.** All that looks at y is repeated in every fold, from the rows outside it; only penalties, one number for each
scheme, are those of least error over all folds. Shares are stacking weights (least squared error of the left-out
predictions), averaged over random draws :math:`W_n(S)/n` of the error products S to allow for sampling noise. They are
then shrunk towards ridge plus nothing, and further to nothing, when the gain is within noise (status: heuristic;
measured in ``docs/tuning.md``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from .arrangement import TIE_TOL, Arrangement
from .combining import simplex_weights
from .fold_data import Fold, FoldData, TestRows
from .penalised import inclusion, lasso_path, lasso_penalty, members, penalised, penalty_unit

Array = NDArray[np.float64]

NAMES = ("ridge", "power", "lasso", "sparse", "uniform", "nothing")
RIDGE, POWER, LASSO, SPARSE, UNIFORM, NOTHING = range(len(NAMES))
PENALTIES = 10.0 ** np.array([1.0, 0.25, -0.5, -1.25, -2.0])  # of ridge regression's, for power and sparse
# of the lasso's largest penalty: fine where few columns come in, then every second one
LASSO_SHARES = np.geomspace(1.0, 2e-3, 21)[[*range(8), *range(8, 21, 2)]]
DRAWS = 24  # of the products of errors
GATE = (-0.5, 0.5)  # standard errors of the gain between which shares are drawn to ridge and nothing
BEYOND = 1.5  # standard errors by which nothing must lose without its best folds, for these to be left out
NEGLIGIBLE = 0.02  # share that is not worth a scheme
SELECT_PROB = 0.5  # from which on the sparse scheme keeps a column
STEPS_BEYOND = 3  # of the lasso's best penalty in the first repeat, that later ones try
PAIRS = (15, 30)  # of uniform members that judge in a fold, at least and at most ...
WORK, MOST_DRAWN = 1e8, 6e4  # ... as many as take so many operations, and columns to draw from
LARGEST_SHARE = 0.85  # of the rows: members stay clear of the interpolation peak
LEAST_EXTRAPOLATED = 0.5  # of the observed error of some uniform members: that of infinitely many is not less
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
        fits, none = _fold_fits(data, [np.zeros(p)] * data.first), np.zeros(p, dtype=bool)
        mse = float(np.average([fold.errors(np.zeros((1, p)))[0] for fold in data.folds], weights=data.weight))
        return cls((), 0.0, 1.0, mse, _standard_error(data, fits, mse), fits, none, np.zeros(p))

    def rearranged(self, arrangement: Arrangement) -> Choice:
        """The choice for rows and columns as they came, from that for an arrangement of them."""
        back = arrangement.columns_back
        schemes = tuple(
            replace(scheme, spreads=back(scheme.spreads), inclusion=back(scheme.inclusion)) for scheme in self.schemes
        )
        fits = []
        for fit in self.fits:
            rows, residual = fit.rows, fit.residual
            if rows is not None and residual is not None:
                rows, residual = arrangement.rows_back(rows, residual)
            fits.append(FoldFit(back(fit.coef), fit.intercept, rows, residual))
        return replace(
            self,
            schemes=schemes,
            fits=fits,
            selected=back(self.selected),
            selection_frequency=back(self.selection_frequency),
        )

    @property
    def shares(self) -> dict[str, float]:
        """By name."""
        found = {scheme.name: scheme.share for scheme in self.schemes}
        return {**found, **{n: s for n, s in (("uniform", self.uniform), ("nothing", self.nothing)) if s > 0}}


def choose_schemes(
    data: FoldData, penalty: float, uniform_size: int, *, only_ridge: bool = False, scale: float | None = None
) -> Choice:
    """Schemes, penalties and shares for one target; `penalty` is that of ridge regression on all rows.

    A `scale` that is given leaves no share to nothing.
    """
    fits, first, all_alike = data.fits, data.first, np.ones(len(data.unit))
    ridge = data.each(penalised, fits, repeat(all_alike), repeat(np.array([penalty])))
    power = data.each(penalised, fits[:-1], [_powers(b[0], 1.0) for b in ridge], repeat(penalty * PENALTIES))
    lasso = data.each(lasso_path, fits[:first], repeat(LASSO_SHARES))
    shorter = LASSO_SHARES[: data.best(lasso) + 1 + STEPS_BEYOND]  # after the first repeat, a little beyond the best
    lasso += data.each(lasso_path, fits[first:], repeat(shorter))
    at_power, at_lasso = data.best(power), data.best([path[: len(lasso[-1])] for path in lasso])
    squares = [_powers(path[at_lasso], 2.0) for path in lasso]
    sparse = data.each(penalised, fits[:-1], squares, repeat(penalty * PENALTIES))
    at_sparse = data.best(sparse)
    of_folds = zip(ridge, power, lasso, sparse, strict=False)
    chosen = [np.stack([a[0], b[at_power], c[at_lasso], d[at_sparse]]) for a, b, c, d in of_folds]
    # on all rows: spreads, and penalties in units of these
    b = lasso[-1][at_lasso]
    copies = data.whole.copies
    spreads = [all_alike, _powers(ridge[-1][0], 1.0), copies.mean(_powers(b, 1.0)), copies.mean(squares[-1])]
    of_lasso = lasso_penalty(data.whole, b[:, None], float(LASSO_SHARES[at_lasso]))
    penalties = [penalty, penalty * PENALTIES[at_power], of_lasso, penalty * PENALTIES[at_sparse]]
    products, coefs, trusted = _products(data, chosen, None if only_ridge else uniform_size)
    usable = np.array([True, *[not only_ridge] * 3, trusted, scale is None and not only_ridge])
    usable[POWER:UNIFORM] &= [spread.any() for spread in spreads[POWER:]]  # else there is none to draw
    shares, optimism = _shares(products, data, usable)
    used = [i for i in range(UNIFORM) if shares[i] > 0]
    which = [*used, SPARSE]
    alpha = data.each(inclusion, repeat(data.whole), [spreads[i] for i in which], [penalties[i] for i in which])
    schemes = [
        Scheme(
            NAMES[i], float(shares[i]), spreads[i] / data.unit**2,
            penalties[i] * penalty_unit(data.whole, spreads[i]), included,
        )
        for i, included in zip(used, alpha, strict=False)
    ]  # fmt: skip
    often = data.each(inclusion, fits[:-1], squares, repeat(penalties[SPARSE]))
    S, of_first = _mean(products, data.weight), _mean(products[:first], data.weight[:first])
    scaled = shares if scale is None else scale * shares + (1 - scale) * np.eye(len(NAMES))[NOTHING]
    mse = max(0.0, float(scaled @ S @ scaled)) + optimism
    fold_fits = _fold_fits(data, [scaled @ every for every in coefs])
    return Choice(
        tuple(schemes), float(shares[UNIFORM]), float(shares[NOTHING]), mse,
        _standard_error(data, fold_fits, mse), fold_fits, alpha[-1] >= SELECT_PROB,
        np.mean([a >= SELECT_PROB for a in often], axis=0), float(S[RIDGE, RIDGE] - of_first[RIDGE, RIDGE]),
        _enlargement(fold_fits, mse),
    )  # fmt: skip


def _powers(coef: Array, q: float) -> Array:
    """|b_j|^q, the largest one."""
    top = float(np.abs(coef).max(initial=0.0))
    return (np.abs(coef) / top) ** q if top > 0 else np.zeros(len(coef))


def _mean(products: Array | Sequence[Array], weight: Array) -> Array:
    """Over folds."""
    return np.asarray(np.tensordot(weight / weight.sum(), products, axes=1))


def _uniform(data: FoldData, size: int, folds: int) -> tuple[list[Array], list[float], bool]:
    """Mean coefficients (p,) of uniform members in the first folds, and the errors of infinitely many of them.

    Members come in pairs, both ends of random orders of the columns: as many as are cheap, as more of them are better
    judges of small differences. With the mean error P of a pair's mean and that of k members R, infinitely many have
    R - 2 (P - R) / (k - 2). Wild members make that difference noise, which may be negative: an error below
    LEAST_EXTRAPOLATED of R is not believed. The last value returned says whether all folds had a larger one.
    """
    p = len(data.unit)
    pairs = int(np.clip(min(WORK / max(1.0, size) ** 3, MOST_DRAWN / p), *PAIRS))
    orders, columns = np.random.default_rng(SEED).permuted(np.tile(np.arange(p), (pairs, 1)), axis=1), []
    for fold in data.folds[:folds]:
        m = round(np.sqrt(fold.fits.n_rows / data.n_rows) * size)
        m = max(1, min(m, int(LARGEST_SHARE * (fold.fits.n_rows - 1))))
        columns.append(np.sort(np.concatenate([orders[:, :m], orders[:, -m:]]), axis=1))  # one half, the other
    coefs = data.each(members, data.fits, columns)
    means = [every.mean(axis=0) for every in coefs]
    observed = np.concatenate(data.each(Fold.errors, data.folds, [mean[None] for mean in means]))
    of_pairs = data.each(Fold.errors, data.folds, [(every[:pairs] + every[pairs:]) / 2 for every in coefs])
    pair = np.array([errors.mean() for errors in of_pairs])
    extrapolated = observed - 2 * (pair - observed) / (2 * pairs - 2)
    least = LEAST_EXTRAPOLATED * observed
    return means, np.maximum(extrapolated, least).tolist(), bool(np.all(extrapolated >= least))


def _products(data: FoldData, chosen: list[Array], uniform_size: int | None) -> tuple[Array, list[Array], bool]:
    """Mean products of errors (folds, schemes, schemes), coefficients (schemes, p) of every fold, and whether the error
    of uniform members can be trusted.

    Of many rows uniform members are fitted in the first repeat only; in the others they have the same lead.
    """
    known = len(data.folds) if data.n_rows < FEW_ROWS else data.first
    uniform, errors, trusted = [coef[RIDGE] for coef in chosen], list[float](), False
    if uniform_size is not None:
        uniform[:known], errors, trusted = _uniform(data, uniform_size, known)
    every = [np.vstack([coef, own, np.zeros(len(own))]) for coef, own in zip(chosen, uniform, strict=True)]
    found = np.stack(data.each(Fold.products, data.folds, every))
    found[: len(errors), UNIFORM, UNIFORM] = errors
    first = _mean(found[:known], data.weight[:known])
    lead = first[UNIFORM] - first[RIDGE]
    for S in found[known:]:
        S[UNIFORM] = S[RIDGE] + lead
        S[:, UNIFORM] = S[UNIFORM]
        S[UNIFORM, UNIFORM] = S[RIDGE, RIDGE] + first[UNIFORM, UNIFORM] - first[RIDGE, RIDGE]
    return found, every[:known], trusted


def _fold_fits(data: FoldData, coefs: list[Array]) -> list[FoldFit]:
    """The mixture without each fold, as far as all of it is known."""
    fits = []
    for fold, coef in zip(data.folds, coefs, strict=False):
        residual, intercept = fold.residuals(coef[None]), float(fold.mean_y[0] - fold.mean_x @ coef)
        fits.append(FoldFit(coef / data.unit, intercept, fold.rows, None if residual is None else residual[:, 0]))
    return fits


def _shares(products: Array, data: FoldData, usable: NDArray[np.bool_]) -> tuple[Array, float]:
    """Of the schemes, (schemes,), and how much their error is underestimated by having chosen them."""
    n, weight = data.n_rows, data.weight
    S, fits = _mean(products, weight), np.flatnonzero(usable & (np.arange(len(NAMES)) != NOTHING))
    shares = np.zeros(len(NAMES))
    shares[fits], optimism = _stacked(S[np.ix_(fits, fits)], n)
    nothing, ridge = np.eye(len(NAMES))[[NOTHING, RIDGE]]
    steady = _without_best(nothing, ridge, products, data)
    with_ridge = _lead(ridge, nothing, products, steady, n * float(steady.sum() / weight.sum())) > BEYOND
    base = _base(_mean(products, steady) if with_ridge else S, usable)
    # drawn to the base unless the gain over it is beyond its noise, also without the best fold of each repeat
    steady = _without_best(shares, base, products, data)
    lead = _lead(shares, base, products, weight, n)
    lead = min(lead, _lead(shares, base, products, steady, n * float(steady.sum() / weight.sum())))
    shares = base + np.clip((lead - GATE[0]) / (GATE[1] - GATE[0]), 0.0, 1.0) * (shares - base)
    if usable[NOTHING]:
        steady = _without_best(nothing, shares, products, data)
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


def _without_best(shares: Array, base: Array, products: Array, data: FoldData) -> Array:
    """Weights of the folds without the one, in each repeat, that gives most of the gain over other shares.

    A gain that rests on one fold may rest on one row.
    """
    gains = data.weight * np.einsum("i,fij,j->f", base - shares, products, base + shares)
    steady = data.weight.copy()
    for part in np.array_split(np.arange(len(gains)), data.repeats):
        if len(part) > 1:
            # folds whose gains differ by rounding only share the loss of one of them
            best = part[gains[part] >= gains[part].max() - TIE_TOL * np.abs(gains).max()]
            steady[best] *= 1 - 1 / len(best)
    return steady


def _lead(shares: Array, base: Array, products: Array, weight: Array, n_rows: float) -> float:
    """Gain over other shares in standard errors.

    With errors e and e' of two ensembles at a left-out row, u = e - e' and v = e + e', the difference of their squares
    is u v, with variance mean(u^2) mean(v^2) + mean(u v)^2 where u and v are Gaussian.
    """
    S, u, v = _mean(products, weight), base - shares, base + shares
    gain = float(u @ S @ v)
    spread = max(float(u @ S @ u), 0.0) * float(v @ S @ v) + gain**2
    return gain / float(np.sqrt(spread / n_rows)) if spread > 0 else 0.0


def _enlargement(fits: list[FoldFit], mse: float) -> float:
    squares = np.concatenate([np.zeros(0), *(fit.residual**2 for fit in fits if fit.residual is not None)])
    return float(np.sqrt(max(1.0, mse / squares.mean()))) if squares.any() else 1.0


def _standard_error(data: FoldData, fits: list[FoldFit], mse: float) -> float:
    """Of the error; from moments its order is known, that of Gaussian errors."""
    if any(fit.residual is None for fit in fits):
        return mse * float(np.sqrt(2 / data.n_rows))
    squares = np.concatenate([np.asarray(fit.residual) ** 2 for fit in fits])
    weight = np.concatenate([fold.test.weight for fold in data.folds[: len(fits)] if isinstance(fold.test, TestRows)])
    share = weight / weight.sum()  # of the row in one of the repeats, which are no more rows
    return float(np.sqrt(len(squares) / data.n_rows * np.sum((share * (squares - share @ squares)) ** 2)))
