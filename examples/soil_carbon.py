"""Predict carbon in soil from near-infrared spectra by least squares, ridge, lasso, PLS, stacking and two ensembles.

There are 732 soils and 700 wavelengths, and neighbouring wavelengths are almost equal. Least squares on all columns has
nearly as many coefficients as training rows and fails. Members of an ensemble have no penalty either, only fewer
columns each. The ensemble of the paper draws columns uniformly; the adaptive one also has sampling schemes that follow
the signal, with weights found by cross-validation.

A single split of the soils into training and test rows says little, so that several splits are drawn. The lasso and the
stacking of ridge regression, lasso and PLS take minutes for each split, and are fitted with ``--slow`` only. The README
has the picture of ``--splits 20 --slow``.
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
from matplotlib.ticker import MultipleLocator

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
    with plt.rc_context({"font.size": 14}):
        draw(splits, names, out)
    print(f"\npicture: {out}")


def draw(splits: list[dict[str, Outcome]], names: list[str], out: Path) -> None:
    """The test errors of the models on all splits, with their means.

    Least squares is left out: its errors are so large that the others would be one blot. The type
    is large enough to be read where the picture is as narrow as a phone.
    """
    drawn = [name for name in names if name != LEAST_SQUARES]
    figure, ax = plt.subplots(
        figsize=(7.2, 0.9 + 0.62 * len(drawn)), layout="constrained"
    )
    for position, name in enumerate(drawn):
        errors = np.array([split[name].error for split in splits])
        color = "#0072B2" if name in OURS else "#666666"
        jitter = np.random.default_rng(0).permutation(
            np.linspace(-0.2, 0.2, len(errors))
        )
        ax.plot(errors, position + jitter, "o", ms=6, alpha=0.45, color=color, mew=0)
        ends = [position - 0.32, position + 0.32]
        ax.plot([errors.mean()] * 2, ends, color=color, lw=3.5)
        ax.annotate(
            f"{errors.mean():.2f}",
            (1.0, position),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="center",
            color=color,
            weight="bold" if name in OURS else "normal",
        )
    ax.set_yticks(range(len(drawn)), drawn)
    ax.set_ylim(len(drawn) - 0.5, -0.5)
    largest = max(split[name].error for split in splits for name in drawn)
    ax.set_xlim(0, 1.18 * largest)
    ax.xaxis.set_major_locator(MultipleLocator(0.5))
    ax.set_xlabel("error on soils not used in the fit (g/100 g)")
    ax.set_title(
        f"{len(splits)} random splits (dots) and their mean (bar)", loc="right"
    )
    ax.spines[["top", "right"]].set_visible(False)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=160)


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
