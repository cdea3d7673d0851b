"""Predict carbon in soil from near-infrared spectra by least squares, ridge, lasso, PLS, stacking and two ensembles.

There are 732 soils and 700 wavelengths, and neighbouring wavelengths are almost equal. Least squares on all columns has
nearly as many coefficients as training rows and fails. Members of an ensemble have no penalty either, only fewer
columns each. The ensemble of the paper draws columns uniformly; the adaptive one also has sampling schemes that follow
the signal, with weights found by cross-validation.

A single split of the soils into training and test rows says little, so that several splits are drawn. The lasso and the
stacking of ridge regression, lasso and PLS take about a minute a split, and are fitted with ``--slow`` only.
"""

import argparse
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from joblib import Parallel, delayed
from sklearn.cross_decomposition import PLSRegression
from sklearn.ensemble import StackingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LassoCV, LinearRegression, RidgeCV
from sklearn.model_selection import GridSearchCV, KFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen.datasets import load_soil_carbon

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FOLDS = KFold(5, shuffle=True, random_state=0)
LEAST_SQUARES, RIDGE, LASSO, PLS, STACKING = (
    "least squares",
    "ridge",
    "lasso",
    "PLS",
    "stacking of the three",
)
ENSEMBLE, ADAPTIVE = "ensemble of the paper", "adaptive model"
SLOW = {LASSO, STACKING}
OURS = {ENSEMBLE, ADAPTIVE}


class Outcome(NamedTuple):
    """What one model did on one split."""

    measured: np.ndarray
    predicted: np.ndarray
    seconds: float

    @property
    def error(self) -> float:
        """Root mean squared error of the test rows, in g of carbon for each 100 g of soil."""
        return float(np.sqrt(np.mean((self.predicted - self.measured) ** 2)))


def new_models():
    """All models by name. RidgeCV, LassoCV and PLS see standardised columns and choose by the same folds."""
    ridge = make_pipeline(StandardScaler(), RidgeCV(alphas=np.logspace(-8, 4, 50)))
    lasso = make_pipeline(StandardScaler(), LassoCV(cv=FOLDS, tol=1e-3, max_iter=2000))
    pls = GridSearchCV(PLSRegression(), {"n_components": range(1, 31)}, cv=FOLDS)
    stacking = StackingRegressor(
        [(RIDGE, ridge), (LASSO, lasso), (PLS, pls)],
        final_estimator=LinearRegression(positive=True),
        cv=FOLDS,
    )
    return {
        LEAST_SQUARES: LinearRegression(),
        RIDGE: ridge,
        LASSO: lasso,
        PLS: pls,
        STACKING: stacking,
        ENSEMBLE: OLSEnsembleRegressorCV(random_state=0),
        ADAPTIVE: AdaptiveOLSEnsembleRegressor(random_state=0),
    }


def compare(split: int, names: list[str]) -> dict[str, Outcome]:
    """Fit the models on three quarters of the soils and predict the others."""
    soil = load_soil_carbon()
    X, X_test, y, y_test = train_test_split(
        soil.data, soil.target, test_size=0.25, random_state=split
    )
    models = new_models()
    outcomes = {}
    for name in names:
        model = models[name]
        start = time.perf_counter()
        with warnings.catch_warnings():
            # paths of the lasso at penalties far below the chosen one, which do not converge
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y)
        seconds = time.perf_counter() - start
        outcomes[name] = Outcome(y_test, model.predict(X_test), seconds)
    return outcomes


def main(out: Path, n_splits: int, slow: bool, jobs: int) -> None:
    names = [name for name in new_models() if slow or name not in SLOW]
    splits = Parallel(n_jobs=jobs)(
        delayed(compare)(split, names) for split in range(n_splits)
    )
    n_test = len(splits[0][ADAPTIVE].measured)
    print(
        f"soil carbon: {732 - n_test} training and {n_test} test spectra, 700 wavelengths,"
        f" {n_splits} random splits\n"
    )
    print(f"{'':>22}   test error (g/100 g)   better than the adaptive model   seconds")
    adaptive = np.array([split[ADAPTIVE].error for split in splits])
    for name in names:
        errors = np.array([split[name].error for split in splits])
        spread = errors.std(ddof=1) / np.sqrt(n_splits) if n_splits > 1 else np.nan
        better = f"{np.sum(errors < adaptive)} of {n_splits} splits"
        seconds = np.median([split[name].seconds for split in splits])
        print(
            f"{name:>22}   {errors.mean():.3f} ± {spread:.3f}"
            f"{better if name != ADAPTIVE else '':>32} {seconds:>17.2f}"
        )
    draw(splits, names, out)
    print(f"\npicture: {out}")


def draw(splits: list[dict[str, Outcome]], names: list[str], out: Path) -> None:
    """Predicted against measured carbon on the first split, and the test errors of all models on all splits."""
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9.5, 3.9), layout="constrained", width_ratios=[1, 1.35]
    )
    measured, predicted, _ = splits[0][ADAPTIVE]
    limits = [min(0, predicted.min()), 1.05 * max(measured.max(), predicted.max())]
    left.plot(limits, limits, color="0.6", lw=1)
    left.plot(measured, predicted, "o", ms=4, alpha=0.6, color="#0072B2")
    left.set(
        xlabel="measured carbon (g/100 g)", ylabel="predicted by the adaptive model"
    )
    left.set_title(f"{len(measured)} soils not used in the fit", fontsize=11)
    for position, name in enumerate(names):
        errors = np.array([split[name].error for split in splits])
        color = "#0072B2" if name in OURS else "#777777"
        jitter = np.linspace(-0.22, 0.22, len(errors))
        right.plot(errors, position + jitter, "o", ms=4, alpha=0.6, color=color, mew=0)
        right.plot(
            [errors.mean()] * 2, [position - 0.28, position + 0.28], color=color, lw=2.5
        )
        right.annotate(
            f"{errors.mean():.2f}",
            (errors.mean(), position - 0.29),
            ha="center",
            va="bottom",
            fontsize=9,
            color=color,
        )
    right.set_yticks(range(len(names)), names)
    right.set_ylim(len(names) - 0.5, -0.75)
    right.set(xlabel="error of predictions (g/100 g)")
    right.set_title(
        f"{len(splits)} random splits (dots) and their mean (bars)", fontsize=11
    )
    right.set_xlim(left=0)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("out/soil_carbon.png"),
        help="where the picture goes",
    )
    parser.add_argument("--splits", type=int, default=5, help="number of random splits")
    parser.add_argument(
        "--slow", action="store_true", help="fit the lasso and stacking, too"
    )
    parser.add_argument(
        "--jobs", type=int, default=-1, help="splits that are fitted at once"
    )
    options = parser.parse_args()
    main(options.out, options.splits, options.slow, options.jobs)
