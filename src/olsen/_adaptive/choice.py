"""Choose the mixture of sampling schemes for one target: the method of the adaptive model, on one
page.

Every scheme is fitted in every fold. Products of the errors of the schemes give stacking weights,
which are shrunk to ridge and to the null model where the gain is noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from .._data.arrangement import Arrangement
from .._data.folds import Fold, FoldData
from .._members.penalised import inclusion, penalty_unit
from .schemes import SCHEMES, FoldFits, in_order_of_requirement, rare_prior_variances
from .weights import FoldProducts, shrink_to_null, shrink_to_ridge, stack

Array = NDArray[np.float64]

NEGLIGIBLE_WEIGHT = 0.02  # weights below are set to zero
SELECTION_PROBABILITY = (
    0.5  # inclusion probability from which on the sparse scheme selects a column
)


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
    selected: NDArray[
        np.bool_
    ]  # (p,) columns that the sparse scheme selects; empty without that scheme
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


def choose(folds: FoldData, names: frozenset[str]) -> Choice:
    """Choose weights and penalties of the named schemes."""
    if "ridge" in names and np.all(rare_prior_variances(folds) == 1):
        names -= {"rare"}  # which is ridge
    fitted: dict[str, FoldFits] = {}
    for scheme in in_order_of_requirement(
        names | {"ridge", "null"}
    ):  # which every comparison needs
        fitted[scheme.name] = scheme.fit(folds, fitted)
    errors = error_products(folds, fitted)
    candidates = _candidates(fitted, names)
    weights, optimism = _weights(errors, list(fitted), candidates)
    return _chosen(folds, fitted, weights, errors, optimism=optimism, candidates=candidates)


def null_choice(folds: FoldData) -> Choice:
    """The mean target, where no column varies."""
    fitted = {"null": SCHEMES["null"].fit(folds, {})}
    errors = error_products(folds, fitted)
    return _chosen(folds, fitted, np.ones(1), errors, optimism=0.0, candidates={"null"})


def _candidates(fitted: dict[str, FoldFits], names: frozenset[str]) -> set[str]:
    """Schemes that may have a weight; uniform members with an unreliable error only if no other
    scheme is usable.
    """
    usable = {name for name in names if fitted[name].usable}
    if not usable - {"null"} and "uniform" in names:
        usable.add("uniform")
    return usable or {"null"}


def error_products(folds: FoldData, fitted: dict[str, FoldFits]) -> FoldProducts:
    """Mean products of the errors of all schemes in every fold.

    A scheme that was fitted in the first repeat only is assumed to have the same lead over ridge in
    later repeats.
    """
    names = list(fitted)
    coefs = [_coefs_in_fold(fitted, f) for f in range(len(folds.folds))]
    products = np.stack(folds.map(Fold.products, folds.folds, coefs))
    result = FoldProducts(products, folds.weight, folds.repeats, folds.n_rows)
    for i, fits in enumerate(fitted.values()):
        if fits.errors is not None:
            products[: len(fits.errors), i, i] = fits.errors
        if len(fits.coefs) < len(products):
            _extend_lead(products, folds.weight, len(fits.coefs), i, names.index("ridge"))
    return result


def _coefs_in_fold(fitted: dict[str, FoldFits], fold: int) -> Array:
    """Coefficients (n_schemes, p) in a fold; schemes that were not fitted in the fold have those of
    ridge.
    """
    rows = []
    for fits in fitted.values():
        was_fitted = fold < len(fits.coefs)
        rows.append(fits.coefs[fold] if was_fitted else fitted["ridge"].coefs[fold])
    return np.vstack(rows)


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
    weights = np.zeros(len(names))
    weights[stacked], optimism = stack(errors.mean()[np.ix_(stacked, stacked)], errors.n_rows)
    if "ridge" in candidates:
        weights = shrink_to_ridge(weights, errors, ridge, null, with_null="null" in candidates)
    if "null" in candidates:
        weights = shrink_to_null(weights, errors, null)
    weights = np.where(weights < NEGLIGIBLE_WEIGHT, 0.0, weights)
    return weights / weights.sum(), optimism


def _chosen(
    folds: FoldData,
    fitted: dict[str, FoldFits],
    weights: Array,
    errors: FoldProducts,
    *,
    optimism: float,
    candidates: set[str],
) -> Choice:
    """Assemble the choice with its errors, held-out fits and selected columns."""
    names = list(fitted)
    S = errors.mean()
    mse = max(0.0, float(weights @ S @ weights)) + optimism
    n_fitted = min(
        len(fits.coefs) for fits in fitted.values()
    )  # folds in which all schemes were fitted
    coefs = [
        np.vstack([fits.coefs[f] for fits in fitted.values()]) for f in range(n_fitted)
    ]  # (n_schemes, p) in every fold
    with_mixture = [np.vstack([of_schemes, weights @ of_schemes]) for of_schemes in coefs]
    residuals = folds.map(Fold.residuals, folds.folds, with_mixture)
    fits = _held_out_fits(folds, with_mixture, residuals)
    selected, frequency = _selection(folds, fitted.get("sparse"))
    return Choice(
        weights={
            name: float(weight) for name, weight in zip(names, weights, strict=True) if weight > 0
        },
        errors={name: float(S[i, i]) for i, name in enumerate(names) if name in candidates},
        standard_errors={
            name: _standard_error(folds, residuals, i, float(S[i, i]))
            for i, name in enumerate(names)
        },
        schemes=_weighted_schemes(folds, fitted, weights),
        uniform_penalty=fitted["uniform"].penalty if "uniform" in fitted else 0.0,
        mse=mse,
        standard_error=_standard_error(folds, residuals, len(names), mse),
        fits=fits,
        selected=selected,
        selection_frequency=frequency,
        enlargement=_enlargement(fits, mse),
    )


def _weighted_schemes(
    folds: FoldData, fitted: dict[str, FoldFits], weights: Array
) -> tuple[WeightedScheme, ...]:
    schemes = []
    for (name, fits), weight in zip(fitted.items(), weights, strict=True):
        if weight > 0 and fits.prior_variances is not None:
            schemes.append(
                WeightedScheme(
                    name=name,
                    weight=float(weight),
                    prior_variances=fits.prior_variances / folds.unit**2,
                    penalty=fits.penalty * penalty_unit(folds.all_rows, fits.prior_variances),
                    inclusion=inclusion(folds.all_rows, fits.prior_variances, fits.penalty),
                )
            )
    return tuple(schemes)


def _selection(folds: FoldData, sparse: FoldFits | None) -> tuple[NDArray[np.bool_], Array]:
    """Columns that the sparse scheme selects, and the fraction of folds in which it does; empty
    without the scheme.
    """
    if sparse is None:
        return np.empty(0, dtype=bool), np.empty(0)
    assert sparse.prior_variances is not None and sparse.fold_prior_variances is not None
    on_all_rows = inclusion(folds.all_rows, sparse.prior_variances, sparse.penalty)
    in_folds = folds.map(
        inclusion, folds.training_sets[:-1], sparse.fold_prior_variances, repeat(sparse.penalty)
    )
    selected = [probabilities >= SELECTION_PROBABILITY for probabilities in in_folds]
    return on_all_rows >= SELECTION_PROBABILITY, np.mean(selected, axis=0)


def _held_out_fits(
    folds: FoldData, coefs: list[Array], residuals: list[Array | None]
) -> list[HeldOutFit]:
    """The mixture without each fold, from coefficients and residuals of which it has the last."""
    fits = []
    for fold, of_fold, residual in zip(folds.folds, coefs, residuals, strict=False):
        coef = of_fold[-1]
        intercept = float(fold.mean_y[0] - fold.mean_x @ coef)
        fits.append(
            HeldOutFit(
                coef / folds.unit,
                intercept,
                fold.test.rows,
                None if residual is None else residual[:, -1].copy(),
            )
        )
    return fits


def _enlargement(fits: list[HeldOutFit], mse: float) -> float:
    """Factor that brings the residuals, which also chose the weights, to the size of the estimated
    error.
    """
    squares = np.concatenate(
        [np.zeros(0), *(fit.residual**2 for fit in fits if fit.residual is not None)]
    )
    return float(np.sqrt(max(1.0, mse / squares.mean()))) if squares.any() else 1.0


def _standard_error(
    folds: FoldData, residuals: list[Array | None], column: int, mse: float
) -> float:
    """Standard error of the estimated error `mse`, from a column of the residuals of every fold;
    moments only give its order, that of Gaussian errors.
    """
    known = [residual[:, column] for residual in residuals if residual is not None]
    if len(known) < len(residuals):
        return mse * float(np.sqrt(2 / folds.n_rows))
    squares = np.concatenate(known) ** 2
    weights_of_folds = [fold.test.row_weights for fold in folds.folds[: len(known)]]
    row_weights = np.concatenate([weights for weights in weights_of_folds if weights is not None])
    fractions = row_weights / row_weights.sum()
    deviations = fractions * (squares - fractions @ squares)
    # repeats do not add rows: a row that is held out several times counts once
    return float(np.sqrt(len(squares) / folds.n_rows * np.sum(deviations**2)))
