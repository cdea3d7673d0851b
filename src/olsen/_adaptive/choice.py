"""Choose the mixture of sampling schemes of each target: the method of the adaptive model, on one
page.

Every scheme is fitted in every fold, for all targets together. Products of the errors of the
schemes give stacking weights for each target, which are shrunk to ridge and to the null model where
the gain is noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from .._data.arrangement import Arrangement
from .._data.folds import Fold, FoldData
from .._execution.threads import cached_property
from .._members.penalised import inclusion, penalty_unit
from .schemes import SCHEMES, FoldFits, in_order_of_requirement, rare_prior_variances
from .weights import FoldProducts, shrink_to_null, shrink_to_ridge, stack

Array = NDArray[np.float64]

NEGLIGIBLE_WEIGHT = 0.02  # weights below are set to zero
# inclusion probability from which on the sparse scheme selects a column
SELECTION_PROBABILITY = 0.5


@dataclass(frozen=True, kw_only=True)
class WeightedScheme:
    """A determinantal scheme with its weight in the mixture."""

    name: str
    weight: float
    prior_variances: Array  # (p,) for the columns in their original units
    penalty: float
    inclusion: Array  # (p,) probability of every column to be in a member


@dataclass(frozen=True)
class HeldOutFit:
    """The mixture fitted without a fold, and its residuals for the rows of the fold."""

    coef: Array  # (p,)
    intercept: float
    rows: NDArray[np.int64] | None
    residual: Array | None  # (rows,)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Sampling schemes with their weights, and the estimated error of the mixture."""

    weights: dict[str, float]  # of every scheme that has one
    errors: dict[str, float]  # estimated error of every scheme alone
    standard_errors: dict[str, float]  # of these errors
    schemes: tuple[WeightedScheme, ...]  # determinantal schemes
    uniform_penalty: float  # of the columns of uniform members, see `schemes.Uniform`
    mse: float
    standard_error: float
    fits: list[HeldOutFit]  # of the mixture in every fold
    # (p,) columns that the sparse scheme selects; empty without that scheme
    selected: NDArray[np.bool_]
    selection_frequency: Array  # (p,) fraction of the folds in which a column is selected
    enlargement: float = 1.0  # factor that brings residuals of the folds to the estimated error

    def rearranged(self, arrangement: Arrangement) -> Choice:
        """The choice in the original order of rows and columns, from the choice in an arrangement."""
        in_original_order = arrangement.columns_back
        schemes = tuple(
            replace(
                scheme,
                prior_variances=in_original_order(scheme.prior_variances),
                inclusion=in_original_order(scheme.inclusion),
            )
            for scheme in self.schemes
        )
        fits = []
        for fit in self.fits:
            rows = fit.rows
            residual = fit.residual
            if rows is not None and residual is not None:
                rows, residual = arrangement.rows_back(rows, residual)
            fits.append(HeldOutFit(in_original_order(fit.coef), fit.intercept, rows, residual))
        selected = self.selected
        frequency = self.selection_frequency
        if len(selected):
            selected = in_original_order(selected)
            frequency = in_original_order(frequency)
        return replace(
            self, schemes=schemes, fits=fits, selected=selected, selection_frequency=frequency
        )


def choose(folds: FoldData, names: frozenset[str]) -> list[Choice]:
    """Choose weights and penalties of the named schemes for each target."""
    if "ridge" in names and np.all(rare_prior_variances(folds) == 1):
        names -= {"rare"}  # which is ridge
    fitted: dict[str, FoldFits] = {}
    for scheme in in_order_of_requirement(
        names | {"ridge", "null"}
    ):  # which every comparison needs
        fitted[scheme.name] = scheme.fit(folds, fitted)
    errors = error_products(folds, fitted)
    residuals = _residuals(folds, fitted)

    def choose_for(target: int) -> Choice:
        candidates = _candidates(fitted, names, target)
        weights, optimism = _weights(errors[target], list(fitted), candidates)
        fits = SchemeFits(folds, fitted, residuals, target)
        return _chosen(fits, weights, errors[target], optimism=optimism, candidates=candidates)

    return folds.map(choose_for, range(folds.n_targets))


def null_choice(folds: FoldData) -> list[Choice]:
    """The mean of each target, where no column varies."""
    fitted = {"null": SCHEMES["null"].fit(folds, {})}
    errors = error_products(folds, fitted)
    residuals = _residuals(folds, fitted)
    return [
        _chosen(
            SchemeFits(folds, fitted, residuals, target),
            np.ones(1),
            errors[target],
            optimism=0.0,
            candidates={"null"},
        )
        for target in range(folds.n_targets)
    ]


@dataclass(frozen=True)
class SchemeFits:
    """Fits of all schemes, and the target that is looked at."""

    folds: FoldData
    fitted: dict[str, FoldFits]
    of_all_targets: list[Array | None]  # residuals (rows, n_schemes, q) of the folds
    target: int

    @cached_property
    def residuals(self) -> list[Array | None]:
        """Residuals (rows, n_schemes) of every fold that all schemes were fitted in."""
        return [None if r is None else r[:, :, self.target] for r in self.of_all_targets]

    @property
    def coefs(self) -> list[Array]:
        """Coefficients (n_schemes, p) in these folds."""
        fits = self.fitted.values()
        return [
            np.stack([of_scheme.coefs[f][:, self.target] for of_scheme in fits])
            for f in range(len(self.of_all_targets))
        ]


def _residuals(folds: FoldData, fitted: dict[str, FoldFits]) -> list[Array | None]:
    """Residuals (rows, n_schemes, q) of the folds in which all schemes were fitted."""
    n_fitted = min(fits.n_fitted for fits in fitted.values())
    coefs = [np.stack([fits.coefs[f] for fits in fitted.values()]) for f in range(n_fitted)]
    return folds.map(Fold.residuals, folds.folds, coefs)


def _candidates(fitted: dict[str, FoldFits], names: frozenset[str], target: int) -> set[str]:
    """Schemes that may have a weight; uniform members with an unreliable error only if no other
    scheme is usable.
    """
    usable = {name for name in names if fitted[name].is_usable(target)}
    if not usable - {"null"} and "uniform" in names:
        usable.add("uniform")
    return usable or {"null"}


def error_products(folds: FoldData, fitted: dict[str, FoldFits]) -> list[FoldProducts]:
    """Mean products of the errors of all schemes in every fold, for each target.

    A scheme that was fitted in the first repeat only is assumed to have the same lead over ridge in
    later repeats.
    """
    names = list(fitted)
    coefs = [_coefs_in_fold(fitted, f) for f in range(len(folds.folds))]
    products = np.stack(folds.map(Fold.products, folds.folds, coefs), axis=1)  # (q, folds, ...)
    for i, fits in enumerate(fitted.values()):
        if fits.errors is not None:
            products[:, : len(fits.errors), i, i] = fits.errors.T
        if fits.n_fitted < len(folds.folds):
            for of_target in products:
                _extend_lead(of_target, folds.weight, fits.n_fitted, i, names.index("ridge"))
    return [
        FoldProducts(of_target, folds.weight, folds.repeats, folds.n_rows) for of_target in products
    ]


def _coefs_in_fold(fitted: dict[str, FoldFits], fold: int) -> Array:
    """Coefficients (n_schemes, p, q) in a fold; schemes that were not fitted in the fold have those
    of ridge.
    """
    was_fitted = [fold < fits.n_fitted for fits in fitted.values()]
    return np.stack(
        [
            (fits if known else fitted["ridge"]).coefs[fold]
            for fits, known in zip(fitted.values(), was_fitted, strict=True)
        ]
    )


def _extend_lead(
    products: Array, fold_weights: Array, n_fitted: int, scheme: int, ridge: int
) -> None:
    """Extend the mean lead over ridge of a scheme fitted in the first folds to the later folds, in
    place.
    """
    weights = fold_weights[:n_fitted] / fold_weights[:n_fitted].sum()
    S = np.tensordot(weights, products[:n_fitted], axes=1)
    lead = S[scheme] - S[ridge]
    for fold_products in products[n_fitted:]:
        fold_products[scheme] = fold_products[ridge] + lead
        fold_products[:, scheme] = fold_products[scheme]
        fold_products[scheme, scheme] = (
            fold_products[ridge, ridge] + S[scheme, scheme] - S[ridge, ridge]
        )


def _weights(errors: FoldProducts, names: list[str], candidates: set[str]) -> tuple[Array, float]:
    """Weights (n_schemes,), and the optimism of their cross-validated error."""
    stacked = [i for i, name in enumerate(names) if name in candidates and name != "null"]
    ridge = names.index("ridge")
    null = names.index("null")
    if not stacked:
        return np.eye(len(names))[null], 0.0
    stacked_weights = np.zeros(len(names))
    S = errors.mean()[np.ix_(stacked, stacked)]
    stacked_weights[stacked], optimism = stack(S, errors.n_rows)
    weights = stacked_weights
    if "ridge" in candidates:
        weights = shrink_to_ridge(weights, errors, ridge, null, with_null="null" in candidates)
    if "null" in candidates:
        weights = shrink_to_null(weights, errors, null)
    weights = np.where(weights < NEGLIGIBLE_WEIGHT, 0.0, weights)
    weights /= weights.sum()
    # what shrinkage has taken from the stacked weights was not chosen by their error
    return weights, optimism * float(np.minimum(weights, stacked_weights).sum())


def _chosen(
    fits: SchemeFits,
    weights: Array,
    errors: FoldProducts,
    *,
    optimism: float,
    candidates: set[str],
) -> Choice:
    """Assemble the choice for a target with its errors, held-out fits and selected columns."""
    names = list(fits.fitted)
    S = errors.mean()
    mse = max(0.0, float(weights @ S @ weights)) + optimism
    held_out = _held_out_fits(fits, weights)
    standard_errors = _standard_errors(fits, weights, np.r_[np.diagonal(S), mse])
    selected, frequency = _selection(fits)
    return Choice(
        weights={
            name: float(weight) for name, weight in zip(names, weights, strict=True) if weight > 0
        },
        errors={name: float(S[i, i]) for i, name in enumerate(names) if name in candidates},
        standard_errors=dict(zip(names, standard_errors[:-1].tolist(), strict=True)),
        schemes=_weighted_schemes(fits, weights),
        uniform_penalty=_uniform_penalty(fits),
        mse=mse,
        standard_error=float(standard_errors[-1]),
        fits=held_out,
        selected=selected,
        selection_frequency=frequency,
        enlargement=_enlargement(held_out, mse),
    )


def _weighted_schemes(fits: SchemeFits, weights: Array) -> tuple[WeightedScheme, ...]:
    schemes = []
    folds = fits.folds
    for (name, of_scheme), weight in zip(fits.fitted.items(), weights, strict=True):
        if weight > 0 and of_scheme.prior_variances is not None:
            assert of_scheme.penalty is not None
            prior_variances = of_scheme.prior_variances[:, fits.target]
            penalty = float(of_scheme.penalty[fits.target])
            schemes.append(
                WeightedScheme(
                    name=name,
                    weight=float(weight),
                    prior_variances=prior_variances / folds.unit**2,
                    penalty=penalty * float(penalty_unit(folds.all_rows, prior_variances)),
                    inclusion=inclusion(folds.all_rows, prior_variances, penalty),
                )
            )
    return tuple(schemes)


def _uniform_penalty(fits: SchemeFits) -> float:
    """Penalty of the columns of uniform members; zero without the scheme."""
    uniform = fits.fitted.get("uniform")
    if uniform is None or uniform.penalty is None:
        return 0.0
    return float(uniform.penalty[fits.target])


def _selection(fits: SchemeFits) -> tuple[NDArray[np.bool_], Array]:
    """Columns that the sparse scheme selects, and the fraction of folds in which it does; empty
    without the scheme.
    """
    sparse = fits.fitted.get("sparse")
    if sparse is None:
        return np.empty(0, dtype=bool), np.empty(0)
    assert sparse.prior_variances is not None and sparse.fold_prior_variances is not None
    assert sparse.penalty is not None
    t = fits.target
    penalty = float(sparse.penalty[t])
    folds = fits.folds
    on_all_rows = inclusion(folds.all_rows, sparse.prior_variances[:, t], penalty)
    variances = [of_fold[:, t] for of_fold in sparse.fold_prior_variances]
    in_folds = folds.map(inclusion, folds.training_sets[:-1], variances, repeat(penalty))
    selected = [probabilities >= SELECTION_PROBABILITY for probabilities in in_folds]
    return on_all_rows >= SELECTION_PROBABILITY, np.mean(selected, axis=0)


def _held_out_fits(fits: SchemeFits, weights: Array) -> list[HeldOutFit]:
    """The mixture without each fold."""
    held_out = []
    for fold, of_schemes, residual in zip(
        fits.folds.folds, fits.coefs, fits.residuals, strict=False
    ):
        coef = weights @ of_schemes
        intercept = float(fold.mean_y[fits.target] - fold.mean_x @ coef)
        held_out.append(
            HeldOutFit(
                coef / fits.folds.unit,
                intercept,
                fold.test.rows,
                None if residual is None else residual @ weights,
            )
        )
    return held_out


def _enlargement(fits: list[HeldOutFit], mse: float) -> float:
    """Factor that brings the residuals, which also chose the weights, to the size of the estimated
    error.
    """
    squares = np.concatenate(
        [np.zeros(0), *(fit.residual**2 for fit in fits if fit.residual is not None)]
    )
    return float(np.sqrt(max(1.0, mse / squares.mean()))) if squares.any() else 1.0


def _standard_errors(fits: SchemeFits, weights: Array, errors: Array) -> Array:
    """Standard errors of estimated `errors` of all schemes and of their mixture, from the residuals
    of every fold; moments only give their order, that of Gaussian errors.
    """
    folds = fits.folds
    known = [residual for residual in fits.residuals if residual is not None]
    if len(known) < len(fits.residuals):
        return errors * float(np.sqrt(2 / folds.n_rows))
    residual = np.concatenate(known)
    squares = np.column_stack([residual, residual @ weights]) ** 2
    weights_of_folds = [fold.test.row_weights for fold in folds.folds[: len(known)]]
    row_weights = np.concatenate([weights for weights in weights_of_folds if weights is not None])
    fractions = row_weights / row_weights.sum()
    deviations = fractions[:, None] * (squares - fractions @ squares)
    # repeats do not add rows: a row that is held out several times counts once
    variance = len(squares) / folds.n_rows * np.sum(deviations**2, axis=0)
    return np.asarray(np.sqrt(variance))
