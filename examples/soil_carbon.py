"""Carbon in soil from near-infrared spectra: least squares, tuned ridge and an ensemble of least-squares fits.

732 soils, 700 wavelengths, neighbours almost equal. Least squares on all columns has nearly as many coefficients as
training rows and fails; the ensemble never uses a penalty either, only fewer columns at a time.
"""

import argparse
import time
from pathlib import Path

import matplotlib
import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.model_selection import train_test_split

from olsen import OLSEnsembleRegressor
from olsen.datasets import load_soil_carbon

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def main(out: Path) -> None:
    soil = load_soil_carbon()
    X, X_test, y, y_test = train_test_split(soil.data, soil.target, test_size=0.25, random_state=0)
    print(f"soil carbon: {len(X)} training and {len(X_test)} test spectra, {X.shape[1]} wavelengths")
    OLSEnsembleRegressor(2, 2).fit(X[:50], y[:50])  # compiled kernels are loaded before the clock starts
    models = {
        "least squares": LinearRegression(),
        "RidgeCV": RidgeCV(alphas=np.logspace(-8, 4, 50)),
        "OLS ensemble": OLSEnsembleRegressor(n_estimators=300, max_features=0.1, random_state=0, n_jobs=-1),
    }
    errors = {}
    for name, model in models.items():
        start = time.perf_counter()
        model.fit(X, y)
        seconds = time.perf_counter() - start
        errors[name] = test_error(model, X_test, y_test)
        score = model.score(X_test, y_test)
        print(f"{name:>14}: test error {errors[name]:.3f} g/100 g, R2 {score:6.3f}, {seconds:.2f} s")
    ensemble = models["OLS ensemble"]
    size = len(ensemble.feature_subsets_[0])
    print(f"the ensemble: {ensemble.n_estimators_} members of {size} wavelengths, solver {ensemble.solver_}, ", end="")
    print(f"{ensemble.n_fallbacks_} solved again from the data because their Gram matrix was not to be trusted")
    sizes = [5, 10, 20, 35, 50, 70, 100, 140, 200, 280]
    hundred = clone(ensemble).set_params(n_estimators=100)
    curve = [test_error(clone(hundred).set_params(max_features=m).fit(X, y), X_test, y_test) for m in sizes]
    draw(y_test, ensemble.predict(X_test), sizes, curve, errors, out)
    print(f"picture: {out}")


def test_error(model, X, y):
    return np.sqrt(np.mean((model.predict(X) - y) ** 2))


def draw(measured, predicted, sizes, curve, errors, out: Path) -> None:
    """Predicted against measured carbon, and the error for every size of the members."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    limits = [0, measured.max() * 1.05]
    left.plot(limits, limits, color="0.6", lw=1)
    left.plot(measured, predicted, "o", ms=4, alpha=0.6, color="#0072B2")
    left.set(
        xlabel="measured carbon (g/100 g)", ylabel="predicted by the ensemble", title="183 soils not used in the fit"
    )
    right.plot(sizes, curve, "o-", ms=4, color="#0072B2", label="OLS ensemble, 100 members")
    for name, style in (("RidgeCV", "--"), ("least squares", ":")):
        right.axhline(errors[name], color="0.3", ls=style, label=name)
    right.set(
        xlabel="columns in a member", ylabel="test error (g/100 g)", title="fewer columns regularise", xscale="log"
    )
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/soil_carbon.png"), help="where the picture goes")
    main(parser.parse_args().out)
