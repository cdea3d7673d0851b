r"""The registry of sampling schemes that an adaptive ensemble is made of.

Penalised least squares with prior variances d of standardised columns,
:math:`\min_b \|y - Xb\|^2 + \lambda \sum_j b_j^2 / d_j`, is the mean of all determinantal members with the same prior
variances (``subsets.Determinantal``; status: theorem). Five schemes, from dense signals to sparse
ones, are such fits:

- **ridge**: :math:`d_j = 1`;
- **rare**: :math:`d_j = \min(1, 4 q_j)`, with :math:`q_j` the fraction of the rows in which column j
  is not at its mode;
- **power**: :math:`d_j = |b_j|` from the coefficients b of ridge regression, one step of
  reweighting;
- **lasso**: :math:`d_j = |b_j|` from the lasso's own coefficients, a fixed point of that step;
- **sparse**: :math:`d_j = b_j^2` from the lasso's coefficients, one step beyond.

There are also **uniform** members, as in the paper, and **null**, the mean target.

To add a scheme: write a class with a `name`, the names of the schemes that it `requires`, and
``fit(folds, fitted) -> FoldFits``, and add it to `SCHEMES`. Coefficients are (p, q) for q targets,
each of which has a penalty of its own. Everything that looks at y must be done
in every fold from its training rows; only one number for each scheme, its penalty, may be chosen
over all folds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .._data.folds import Fold, FoldData
from .._data.modes import RARE_FRACTION
from .._members.penalised import group_lasso_path, lasso_penalty, members, penalised

Array = NDArray[np.float64]

PENALTY_FACTORS = 10.0 ** np.array(
    [1.0, 0.25, -0.5, -1.25, -2.0]
)  # times the penalty of ridge, for power and sparse

RARE_PENALTY_FACTORS = 10.0 ** np.array([0.75, 0.375, 0.0, -0.375, -0.75, -1.125])
# fractions of the lasso's largest penalty: a fine grid where few columns enter, then every second
# point
LASSO_FRACTIONS = np.geomspace(1.0, 2e-3, 21)[[*range(8), *range(8, 21, 2)]]
LASSO_STEPS_BEYOND = 3  # penalties beyond the best one of the first repeat that later repeats try
MIN_PAIRS = 15  # pairs of uniform members in a fold
MAX_PAIRS = 30  # more pairs estimate small differences better
MAX_PAIR_OPERATIONS = 1e8  # operations of the solves of one fold
MAX_DRAWN_COLUMNS = 6e4  # columns of all pairs of one fold
# columns of a uniform member for each row: members stay clear of the interpolation peak
LARGEST_ROW_FRACTION = 0.85
# error of infinitely many uniform members over the observed error, at least
MIN_EXTRAPOLATED_RATIO = 0.5
# Penalty of every column of a uniform member, as a fraction of its squared norm. On 43 x 984 of nearly equal
# columns R2 moved by up to 22 over six seeds without it, by .003 with it. Spectra of soil (732 x 700) have
# their signal in small differences: R2 .735 without, .711 with it, .733 with the least penalty.
MEMBER_PENALTY = 1e-5
LEAST_MEMBER_PENALTY = 1e-10
# error of the least penalty over that of MEMBER_PENALTY, at most: .77 and .84 in splits of that table, .90 to
# 1.09 on 24 others and on nearly equal columns
MAX_ERROR_RATIO = 0.9
# of the largest coefficient in the first fold: with smaller changes, the least penalty is not tried
MIN_COEFFICIENT_CHANGE = 0.1
# rows from which on uniform members are fitted in the first repeat only
MANY_ROWS_FOR_UNIFORM = 300
SEED = 24


@dataclass(frozen=True, kw_only=True)
class FoldFits:
    """Fits of a scheme in every fold, and on all rows, for q targets."""

    # (p, q) of standardised columns, for every fold; a costly scheme fits the first repeat only
    coefs: list[Array]
    coef_all_rows: Array | None = None  # (p, q) on all rows, for schemes that require this one
    # (p, q) on all rows, of standardised columns; None: no determinantal members
    prior_variances: Array | None = None
    # (q,) multiples of ``penalty_unit``, in which the best penalty is the ratio of noise to signal; of
    # uniform members, fractions of the squared norm of every column
    penalty: Array | None = None
    fold_prior_variances: list[Array] | None = None  # (p, q) for every fold
    errors: Array | None = None  # (n_folds, q); None: that of the coefficients
    # (q,) whether the scheme can be drawn and its error is reliable; None: always
    usable: NDArray[np.bool_] | None = None

    @property
    def n_fitted(self) -> int:
        """Number of folds in which the scheme was fitted."""
        return len(self.coefs)

    def targets_at(self, which: NDArray[np.int64]) -> FoldFits:
        """Fits of uniform members with some of the targets."""
        assert self.penalty is not None and self.errors is not None and self.usable is not None
        return FoldFits(
            coefs=[coef[:, which] for coef in self.coefs],
            penalty=self.penalty[which],
            errors=self.errors[:, which],
            usable=self.usable[which],
        )

    def is_usable(self, target: int) -> bool:
        """Whether the scheme can be drawn for a target, and its error is reliable."""
        return self.usable is None or bool(self.usable[target])


Fitted = Mapping[str, FoldFits]


class Scheme(Protocol):
    """A way of drawing members."""

    name: str
    requires: tuple[str, ...]  # schemes whose fits are needed first

    def fit(self, folds: FoldData, fitted: Fitted) -> FoldFits:
        """Fit the scheme in every fold, for all targets; `fitted` holds the schemes that it requires."""


class Ridge:
    """Determinantal members with equal prior variances, whose mean is ridge regression."""

    name = "ridge"
    requires: tuple[str, ...] = ()

    def fit(self, folds: FoldData, fitted: Fitted) -> FoldFits:
        penalty = folds.ridge_penalty
        assert penalty is not None
        prior_variances = np.ones((len(folds.unit), folds.n_targets))
        *in_folds, on_all_rows = folds.map(
            penalised, folds.training_sets, repeat(prior_variances), repeat(penalty[None])
        )
        return FoldFits(
            coefs=[coefs[0] for coefs in in_folds],
            coef_all_rows=on_all_rows[0],
            prior_variances=prior_variances,
            penalty=penalty,
        )


class Rare:
    """Determinantal members that hardly ever take columns which are rarely away from their mode.

    Standardising gives a word of three rows the weight of a column that varies in all rows. Here
    the prior variance of a column is min(1, 4 q), with q the fraction of the rows in which the
    column is not at its mode. Up to the factor 1 - q, that is the variance of a column of zeros and
    ones, in units of the largest such variance; every unit and origin of the column gives the same.
    """

    name = "rare"
    requires: tuple[str, ...] = ("ridge",)

    def fit(self, folds: FoldData, fitted: Fitted) -> FoldFits:
        prior_variances = np.tile(rare_prior_variances(folds)[:, None], folds.n_targets)
        variances = [prior_variances] * len(folds.folds)
        coefs, penalty = _reweighted(folds, variances, RARE_PENALTY_FACTORS)
        return FoldFits(coefs=coefs, prior_variances=prior_variances, penalty=penalty)


class Power:
    """Determinantal members that favour columns with large ridge coefficients."""

    name = "power"
    requires: tuple[str, ...] = ("ridge",)

    def fit(self, folds: FoldData, fitted: Fitted) -> FoldFits:
        ridge = fitted["ridge"]
        assert ridge.coef_all_rows is not None
        variances = [powers_of(coef, 1.0) for coef in ridge.coefs]
        coefs, penalty = _reweighted(folds, variances, PENALTY_FACTORS)
        on_all_rows = powers_of(ridge.coef_all_rows, 1.0)
        return FoldFits(
            coefs=coefs,
            prior_variances=on_all_rows,
            penalty=penalty,
            usable=np.any(on_all_rows > 0, axis=0),
        )


class Lasso:
    """Members whose mean is the lasso: a few columns nearly always, most never."""

    name = "lasso"
    requires: tuple[str, ...] = ()

    def fit(self, folds: FoldData, fitted: Fitted) -> FoldFits:
        paths, penalties = zip(*folds.by_target(self._fit_target), strict=True)
        *coefs, on_all_rows = (
            np.concatenate(of_set, axis=1) for of_set in zip(*paths, strict=True)
        )
        prior_variances = folds.all_rows.copies.mean(powers_of(on_all_rows, 1.0))
        return FoldFits(
            coefs=coefs,
            coef_all_rows=on_all_rows,
            prior_variances=prior_variances,
            penalty=np.array(penalties),
            usable=np.any(prior_variances > 0, axis=0),
        )

    def _fit_target(self, folds: FoldData) -> tuple[list[Array], float]:
        """Coefficients (p, 1) of one target in every fold and on all rows, and the penalty."""
        n_first = folds.folds_per_repeat
        paths = folds.map(group_lasso_path, folds.training_sets[:n_first], repeat(LASSO_FRACTIONS))
        fractions = LASSO_FRACTIONS[: folds.best(paths)[0] + 1 + LASSO_STEPS_BEYOND]
        paths += folds.map(group_lasso_path, folds.training_sets[n_first:], repeat(fractions))
        (best,) = folds.best([path[: len(paths[-1])] for path in paths])
        fraction = float(LASSO_FRACTIONS[best])
        penalty = lasso_penalty(folds.all_rows, paths[-1][best], fraction)
        return [path[best] for path in paths], penalty


class Sparse:
    """One step of reweighting beyond the lasso, with fewer columns still."""

    name = "sparse"
    requires: tuple[str, ...] = ("ridge", "lasso")

    def fit(self, folds: FoldData, fitted: Fitted) -> FoldFits:
        lasso = fitted["lasso"]
        assert lasso.coef_all_rows is not None
        variances = [powers_of(coef, 2.0) for coef in lasso.coefs]
        coefs, penalty = _reweighted(folds, variances, PENALTY_FACTORS)
        prior_variances = folds.all_rows.copies.mean(powers_of(lasso.coef_all_rows, 2.0))
        return FoldFits(
            coefs=coefs,
            prior_variances=prior_variances,
            penalty=penalty,
            fold_prior_variances=variances,
            usable=np.any(prior_variances > 0, axis=0),
        )


class Uniform:
    """Members that draw all columns with equal probability, as in the paper.

    Members come in pairs, both ends of random orders of the columns. With the mean error P of a
    pair's mean and the error R of the mean of k members, infinitely many members have the error R -
    2 (P - R) / (k - 2). Large errors of single members make that difference noise, which may be
    negative: the error is at least MIN_EXTRAPOLATED_RATIO of R, and the scheme is not used if the
    extrapolated error is below that bound in any fold.

    Every column of a member has the penalty MEMBER_PENALTY of its squared norm, so that a difference
    of two nearly equal columns, which held-out rows may never have shown, has no coefficient of any
    size: the members of the fit are others than those of the folds. Some tables have their signal in
    such differences: the penalty is LEAST_MEMBER_PENALTY where that lowers the error by a tenth.
    """

    name = "uniform"
    requires: tuple[str, ...] = ("ridge",)  # later repeats only have the lead over ridge

    def fit(self, folds: FoldData, fitted: Fitted) -> FoldFits:
        sizes = folds.uniform_size
        assert sizes is not None
        all_targets = np.arange(folds.n_targets)
        parts = []
        for size in np.unique(sizes).tolist():  # targets of a size share the factors of members
            targets = np.flatnonzero(sizes == size)
            part = folds if len(targets) == len(all_targets) else folds.targets_at(targets)
            parts.append((targets, self._fit_size(part, size)))
        return _joined(parts)

    def _fit_size(self, folds: FoldData, size: int) -> FoldFits:
        """Fit members of one size, for targets that have it in common."""
        n_folds = (
            len(folds.folds) if folds.n_rows < MANY_ROWS_FOR_UNIFORM else folds.folds_per_repeat
        )
        p = len(folds.unit)
        affordable = min(MAX_PAIR_OPERATIONS / max(1.0, size) ** 3, MAX_DRAWN_COLUMNS / p)
        pairs = int(np.clip(affordable, MIN_PAIRS, MAX_PAIRS))
        orders = np.random.default_rng(SEED).permuted(np.tile(np.arange(p), (pairs, 1)), axis=1)
        columns = [
            _both_ends(orders, _size_in(fold, folds, size)) for fold in folds.folds[:n_folds]
        ]
        fits = _uniform_fits(folds, columns, MEMBER_PENALTY)
        least = members(folds.training_sets[0], columns[0], LEAST_MEMBER_PENALTY).mean(axis=0)
        change = np.abs(least - fits.coefs[0]).max(axis=0)
        changed = change > MIN_COEFFICIENT_CHANGE * np.abs(fits.coefs[0]).max(axis=0)
        if not changed.any():
            return fits
        least_penalised = _uniform_fits(folds, columns, LEAST_MEMBER_PENALTY)
        weights = folds.weight[:n_folds]
        assert fits.errors is not None and least_penalised.errors is not None
        much_better = weights @ least_penalised.errors < MAX_ERROR_RATIO * (weights @ fits.errors)
        take_least = changed & much_better & least_penalised.usable
        parts = [(np.flatnonzero(~take_least), fits), (np.flatnonzero(take_least), least_penalised)]
        return _joined([(targets, part.targets_at(targets)) for targets, part in parts])


def _uniform_fits(folds: FoldData, columns: list[NDArray[np.int64]], penalty: float) -> FoldFits:
    """Fits of pairs of uniform members in the first folds, and their extrapolated errors."""
    pairs = len(columns[0]) // 2
    coefs = folds.map(members, folds.training_sets, columns, repeat(penalty))
    means = [member_coefs.mean(axis=0) for member_coefs in coefs]
    pair_means = [(member_coefs[:pairs] + member_coefs[pairs:]) / 2 for member_coefs in coefs]
    observed = np.concatenate(folds.map(Fold.errors, folds.folds, [mean[None] for mean in means]))
    pair_errors = np.array(
        [errors.mean(axis=0) for errors in folds.map(Fold.errors, folds.folds, pair_means)]
    )
    extrapolated = observed - 2 * (pair_errors - observed) / (2 * pairs - 2)
    lower_bound = MIN_EXTRAPOLATED_RATIO * observed
    return FoldFits(
        coefs=means,
        penalty=np.full(folds.n_targets, penalty),
        errors=np.maximum(extrapolated, lower_bound),
        usable=np.all(extrapolated >= lower_bound, axis=0),
    )


def _joined(parts: list[tuple[NDArray[np.int64], FoldFits]]) -> FoldFits:
    """Fits of uniform members of all targets, from those of groups of targets."""
    order = np.argsort(np.concatenate([targets for targets, _ in parts]))
    fits = [of_group for _, of_group in parts]
    return FoldFits(
        coefs=[
            np.concatenate(of_fold, axis=1)[:, order]
            for of_fold in zip(*(part.coefs for part in fits), strict=True)
        ],
        penalty=np.concatenate([part.penalty for part in fits])[order],
        errors=np.concatenate([part.errors for part in fits], axis=1)[:, order],
        usable=np.concatenate([part.usable for part in fits])[order],
    )


class Null:
    """The mean target, for data without signal."""

    name = "null"
    requires: tuple[str, ...] = ()

    def fit(self, folds: FoldData, fitted: Fitted) -> FoldFits:
        zeros = np.zeros((len(folds.unit), folds.n_targets))
        return FoldFits(coefs=[zeros] * len(folds.folds))


SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme
    for scheme in (Ridge(), Rare(), Power(), Lasso(), Sparse(), Uniform(), Null())
}


def in_order_of_requirement(names: frozenset[str]) -> list[Scheme]:
    """The named schemes and all required schemes, each after the schemes that it requires."""
    needed = set(names)
    for scheme in reversed(SCHEMES.values()):  # a scheme requires only earlier ones
        if scheme.name in needed:
            needed.update(scheme.requires)
    return [scheme for scheme in SCHEMES.values() if scheme.name in needed]


def rare_prior_variances(folds: FoldData) -> Array:
    """Prior variances (p,) of the rare scheme; without rare columns they are those of ridge."""
    if folds.away_from_mode is None:
        return np.ones(len(folds.unit))
    return np.minimum(1.0, folds.away_from_mode / RARE_FRACTION)


def powers_of(coef: Array, power: float) -> Array:
    """|b_j| of coefficients (p, q) to a power, in units of the largest of each target."""
    size = np.abs(coef)
    largest = size.max(axis=0, initial=0.0)
    return np.asarray((size / np.where(largest > 0, largest, 1.0)) ** power)


def _reweighted(
    folds: FoldData, variances: list[Array], penalty_factors: Array
) -> tuple[list[Array], Array]:
    """Coefficients (p, q) in every fold of penalised fits with given prior variances, and the best
    penalties (q,), multiples of that of ridge.
    """
    assert folds.ridge_penalty is not None
    penalties = penalty_factors[:, None] * folds.ridge_penalty
    paths = folds.map(penalised, folds.training_sets[:-1], variances, repeat(penalties))
    best = folds.best(paths)
    coefs = [np.take_along_axis(path, best[None, None, :], axis=0)[0] for path in paths]
    return coefs, np.take_along_axis(penalties, best[None, :], axis=0)[0]


def _size_in(fold: Fold, folds: FoldData, size: int) -> int:
    """Columns of uniform members in a fold: their size on all rows in proportion to the root of the
    rows.
    """
    in_proportion = round(float(np.sqrt(fold.train.n_rows / folds.n_rows)) * size)
    return max(1, min(in_proportion, int(LARGEST_ROW_FRACTION * (fold.train.n_rows - 1))))


def _both_ends(orders: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Columns of pairs of members, sorted: the first half of the members from one end, the second
    from the other.
    """
    return np.sort(np.concatenate([orders[:, :size], orders[:, -size:]]), axis=1)
