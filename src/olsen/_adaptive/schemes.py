r"""The registry of sampling schemes that an adaptive ensemble is made of.

Penalised least squares with prior variances d of standardised columns,
:math:`\min_b \|y - Xb\|^2 + \lambda \sum_j b_j^2 / d_j`, is the mean of all determinantal members with these prior
variances (``subsets.Determinantal``; status: theorem). Four schemes, from dense signals to sparse ones, are such fits:

- **ridge**: :math:`d_j = 1`;
- **power**: :math:`d_j = |b_j|` from the coefficients b of ridge regression, one step of reweighting;
- **lasso**: :math:`d_j = |b_j|` from the lasso's own coefficients, a fixed point of that step;
- **sparse**: :math:`d_j = b_j^2` from the lasso's coefficients, one step beyond.

There are also **uniform** members, as in the paper, and **null**, the mean target.

To add a scheme: write a class with a `name`, the names of the schemes that it `requires`, and
``fit(folds, fitted) -> FoldFits``, and add it to `SCHEMES`. Everything that looks at y must be done in every fold from
its training rows; only one number for each scheme, its penalty, may be chosen over all folds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .._tuning.fold_data import Fold, FoldData
from .._tuning.penalised import lasso_path, lasso_penalty, members, penalised

Array = NDArray[np.float64]

PENALTY_FACTORS = 10.0 ** np.array([1.0, 0.25, -0.5, -1.25, -2.0])  # of the penalty of ridge, for power and sparse
# fractions of the lasso's largest penalty: fine where few columns come in, then every second one
LASSO_FRACTIONS = np.geomspace(1.0, 2e-3, 21)[[*range(8), *range(8, 21, 2)]]
LASSO_STEPS_BEYOND = 3  # penalties beyond the best one of the first repeat, which later repeats try
MIN_PAIRS = 15  # of uniform members that judge in a fold
MAX_PAIRS = 30
MAX_PAIR_OPERATIONS = 1e8  # of the solves of one fold: more pairs are better judges of small differences
MAX_DRAWN_COLUMNS = 6e4  # by all pairs of one fold
LARGEST_ROW_FRACTION = 0.85  # columns of a uniform member for each row: members stay clear of the interpolation peak
LEAST_EXTRAPOLATED = 0.5  # of the observed error of some uniform members: that of infinitely many is not less
MANY_ROWS_FOR_UNIFORM = 300  # from which on uniform members are judged in the first repeat only
SEED = 24


@dataclass(frozen=True, kw_only=True)
class FoldFits:
    """What a scheme gives in every fold, and on all rows."""

    coefs: list[Array]  # (p,) of standardised columns, for every fold, or for those of the first repeat
    whole: Array | None = None  # (p,) on all rows
    prior_variances: Array | None = None  # (p,) on all rows, of standardised columns; None: no determinantal members
    penalty: float = 0.0  # in units of the columns
    fold_prior_variances: list[Array] | None = None  # (p,) for every fold
    errors: list[float] | None = None  # of every fold, where they are not those of the coefficients
    usable: bool = True  # whether the scheme can be drawn and its error be trusted


Fitted = Mapping[str, FoldFits]


class Scheme(Protocol):
    """A way of drawing members."""

    name: str
    requires: tuple[str, ...]  # schemes whose fits it starts from

    def fit(self, folds: FoldData, fitted: Fitted) -> FoldFits:
        """Fit the scheme in every fold; `fitted` has the schemes it requires."""


class Ridge:
    """Determinantal members with equal prior variances, whose mean is ridge regression."""

    name = "ridge"
    requires: tuple[str, ...] = ()

    def fit(self, folds: FoldData, fitted: Fitted) -> FoldFits:
        all_alike = np.ones(len(folds.unit))
        penalty = np.array([folds.ridge_penalty])
        *in_folds, whole = folds.map(penalised, folds.fits, repeat(all_alike), repeat(penalty))
        return FoldFits(
            coefs=[coefs[0] for coefs in in_folds],
            whole=whole[0],
            prior_variances=all_alike,
            penalty=folds.ridge_penalty,
        )


class Power:
    """Columns with large ridge coefficients more often."""

    name = "power"
    requires: tuple[str, ...] = ("ridge",)

    def fit(self, folds: FoldData, fitted: Fitted) -> FoldFits:
        ridge = fitted["ridge"]
        assert ridge.whole is not None
        variances = [powers_of(coef, 1.0) for coef in ridge.coefs]
        paths = folds.map(penalised, folds.fits[:-1], variances, repeat(folds.ridge_penalty * PENALTY_FACTORS))
        best = folds.best(paths)
        on_all_rows = powers_of(ridge.whole, 1.0)
        return FoldFits(
            coefs=[path[best] for path in paths],
            prior_variances=on_all_rows,
            penalty=folds.ridge_penalty * PENALTY_FACTORS[best],
            usable=bool(on_all_rows.any()),
        )


class Lasso:
    """Members whose mean is the lasso: a few columns nearly always, most never."""

    name = "lasso"
    requires: tuple[str, ...] = ()

    def fit(self, folds: FoldData, fitted: Fitted) -> FoldFits:
        first = folds.n_first
        paths = folds.map(lasso_path, folds.fits[:first], repeat(LASSO_FRACTIONS))
        fractions = LASSO_FRACTIONS[: folds.best(paths) + 1 + LASSO_STEPS_BEYOND]
        paths += folds.map(lasso_path, folds.fits[first:], repeat(fractions))
        best = folds.best([path[: len(paths[-1])] for path in paths])
        coef = paths[-1][best]
        prior_variances = folds.all_rows.copies.mean(powers_of(coef, 1.0))
        return FoldFits(
            coefs=[path[best] for path in paths[:-1]],
            whole=coef,
            prior_variances=prior_variances,
            penalty=lasso_penalty(folds.all_rows, coef[:, None], float(LASSO_FRACTIONS[best])),
            usable=bool(prior_variances.any()),
        )


class Sparse:
    """One step of reweighting beyond the lasso, with fewer columns still."""

    name = "sparse"
    requires: tuple[str, ...] = ("ridge", "lasso")

    def fit(self, folds: FoldData, fitted: Fitted) -> FoldFits:
        lasso = fitted["lasso"]
        assert lasso.whole is not None
        variances = [powers_of(coef, 2.0) for coef in lasso.coefs]
        paths = folds.map(penalised, folds.fits[:-1], variances, repeat(folds.ridge_penalty * PENALTY_FACTORS))
        best = folds.best(paths)
        prior_variances = folds.all_rows.copies.mean(powers_of(lasso.whole, 2.0))
        return FoldFits(
            coefs=[path[best] for path in paths],
            prior_variances=prior_variances,
            penalty=folds.ridge_penalty * PENALTY_FACTORS[best],
            fold_prior_variances=variances,
            usable=bool(prior_variances.any()),
        )


class Uniform:
    """Members that see all columns alike, as in the paper.

    They come in pairs, both ends of random orders of the columns. With the mean error P of a pair's mean and that of k
    members R, infinitely many have R - 2 (P - R) / (k - 2). Wild members make that difference noise, which may be
    negative: an error below LEAST_EXTRAPOLATED of R is not believed, and the scheme is not used where a fold had one.
    """

    name = "uniform"
    requires: tuple[str, ...] = ("ridge",)  # whose lead in later repeats theirs is taken from

    def fit(self, folds: FoldData, fitted: Fitted) -> FoldFits:
        n_folds = len(folds.folds) if folds.n_rows < MANY_ROWS_FOR_UNIFORM else folds.n_first
        p = len(folds.unit)
        affordable = min(MAX_PAIR_OPERATIONS / max(1.0, folds.uniform_size) ** 3, MAX_DRAWN_COLUMNS / p)
        pairs = int(np.clip(affordable, MIN_PAIRS, MAX_PAIRS))
        orders = np.random.default_rng(SEED).permuted(np.tile(np.arange(p), (pairs, 1)), axis=1)
        columns = [_both_ends(orders, _size_in(fold, folds)) for fold in folds.folds[:n_folds]]
        coefs = folds.map(members, folds.fits, columns)
        means = [of_members.mean(axis=0) for of_members in coefs]
        of_pairs = [(of_members[:pairs] + of_members[pairs:]) / 2 for of_members in coefs]
        observed = np.concatenate(folds.map(Fold.errors, folds.folds, [mean[None] for mean in means]))
        pair_errors = np.array([errors.mean() for errors in folds.map(Fold.errors, folds.folds, of_pairs)])
        extrapolated = observed - 2 * (pair_errors - observed) / (2 * pairs - 2)
        least = LEAST_EXTRAPOLATED * observed
        return FoldFits(
            coefs=means, errors=np.maximum(extrapolated, least).tolist(), usable=bool(np.all(extrapolated >= least))
        )


class Null:
    """The mean target, for data without signal."""

    name = "null"
    requires: tuple[str, ...] = ()

    def fit(self, folds: FoldData, fitted: Fitted) -> FoldFits:
        return FoldFits(coefs=[np.zeros(len(folds.unit))] * len(folds.folds))


SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme for scheme in (Ridge(), Power(), Lasso(), Sparse(), Uniform(), Null())
}


def in_order_of_requirement(names: frozenset[str]) -> list[Scheme]:
    """The named schemes and those they require, each after the ones it requires."""
    needed = set(names)
    for scheme in reversed(SCHEMES.values()):  # a scheme requires only earlier ones
        if scheme.name in needed:
            needed.update(scheme.requires)
    return [scheme for scheme in SCHEMES.values() if scheme.name in needed]


def powers_of(coef: Array, power: float) -> Array:
    """|b_j| to a power, in units of the largest."""
    largest = float(np.abs(coef).max(initial=0.0))
    return (np.abs(coef) / largest) ** power if largest > 0 else np.zeros(len(coef))


def _size_in(fold: Fold, folds: FoldData) -> int:
    """Columns of uniform members in a fold: their size on all rows in proportion to the root of the rows."""
    size = round(float(np.sqrt(fold.fits.n_rows / folds.n_rows)) * folds.uniform_size)
    return max(1, min(size, int(LARGEST_ROW_FRACTION * (fold.fits.n_rows - 1))))


def _both_ends(orders: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Columns of pairs of members, sorted: the first half of the members from one end, the second from the other."""
    return np.sort(np.concatenate([orders[:, :size], orders[:, -size:]]), axis=1)
