"""Carbon in soil from near-infrared spectra: least squares, tuned ridge and an ensemble that tunes itself.

732 soils, 700 wavelengths, neighbours almost equal. Least squares on all columns has nearly as many coefficients as
training rows and fails; the ensemble never uses a penalty either, only fewer columns at a time. How many is read off
the leave-one-out curve, which costs no refit.
"""

import argparse
import time
from pathlib import Path

import matplotlib
import numpy as np
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.model_selection import train_test_split

from olsen import OLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen.datasets import load_soil_carbon

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def main(out: Path) -> None:
    soil = load_soil_carbon()
    X, X_test, y, y_test = train_test_split(soil.data, soil.target, test_size=0.25, random_state=0)
    print(f"soil carbon: {len(X)} training and {len(X_test)} test spectra, {X.shape[1]} wavelengths")
    OLSEnsembleRegressor(400, 60).fit(X, y)  # compiled kernels are loaded before the clock starts
    models = {
        "least squares": LinearRegression(),
        "RidgeCV": RidgeCV(alphas=np.logspace(-8, 4, 50)),
        "OLS ensemble": OLSEnsembleRegressorCV(random_state=0, n_jobs=-1),
    }
    for name, model in models.items():
        start = time.perf_counter()
        model.fit(X, y)
        seconds = time.perf_counter() - start
        error = np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2))
        score = model.score(X_test, y_test)
        print(f"{name:>14}: test error {error:.3f} g/100 g, R2 {score:6.3f}, {seconds:.2f} s")
    ensemble, ridge = models["OLS ensemble"], models["RidgeCV"]
    print(
        f"the ensemble: {ensemble.n_estimators_} members of {ensemble.max_features_} wavelengths, chosen by "
        f"{ensemble.criterion_} with {ensemble.inclusion_kind_} inclusion, scale {ensemble.scale_:.3f}; leave-one-out "
        f"error {np.sqrt(-ensemble.best_score_):.3f}"
    )
    print(
        f"solver {ensemble.solver_}; {ensemble.n_fallbacks_} members solved again from the data, because their Gram "
        f"matrix was not to be trusted"
    )
    draw(y_test, ensemble.predict(X_test), ensemble, np.sqrt(-ridge.best_score_), out)
    print(f"picture: {out}")


def draw(measured, predicted, ensemble, ridge_error, out: Path) -> None:
    """Predicted against measured carbon, and the leave-one-out error for every size of the members."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    limits = [0, measured.max() * 1.05]
    left.plot(limits, limits, color="0.6", lw=1)
    left.plot(measured, predicted, "o", ms=4, alpha=0.6, color="#0072B2")
    left.set(xlabel="measured carbon (g/100 g)", ylabel="predicted by the ensemble")
    left.set_title(f"{len(measured)} soils not used in the fit")
    sizes, k = ensemble.cv_results_["size"], ensemble.n_estimators_
    right.plot(sizes, np.sqrt(ensemble.risk_curve(k)), "o-", ms=4, color="#0072B2", label=f"{k} members")
    right.plot(sizes, np.sqrt(ensemble.risk_curve()), color="#D55E00", ls="--", label="infinitely many")
    right.axvline(ensemble.max_features_, color="0.7", lw=1, label=f"chosen: {ensemble.max_features_}")
    right.axhline(ridge_error, color="0.3", ls=":", label="RidgeCV")
    right.set(xlabel="columns in a member", ylabel="leave-one-out error (g/100 g)", xscale="log")
    if len(sizes) <= 10:
        right.set_xticks(sizes, [str(size) for size in sizes])
        right.minorticks_off()
    right.set_title("fewer columns regularise")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/soil_carbon.png"), help="where the picture goes")
    main(parser.parse_args().out)
