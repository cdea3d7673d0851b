"""Predict carbon in soil from near-infrared spectra with least squares, tuned ridge and two ensembles.

There are 732 soils and 700 wavelengths, and neighbouring wavelengths are almost equal. Least squares on all columns has
nearly as many coefficients as training rows and fails. Members of an ensemble have no penalty either, only fewer
columns each. The ensemble of the paper draws columns uniformly; the adaptive one also has sampling schemes that follow
the signal, with weights found by cross-validation.
"""

import argparse
import time
from pathlib import Path

import matplotlib
import numpy as np
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.model_selection import train_test_split

from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen.datasets import load_soil_carbon

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def main(out: Path) -> None:
    soil = load_soil_carbon()
    X, X_test, y, y_test = train_test_split(soil.data, soil.target, test_size=0.25, random_state=0)
    print(
        f"soil carbon: {len(X)} training and {len(X_test)} test spectra, {X.shape[1]} wavelengths"
    )
    models = {
        "least squares": LinearRegression(),
        "RidgeCV": RidgeCV(alphas=np.logspace(-8, 4, 50)),
        "OLS ensemble": OLSEnsembleRegressorCV(random_state=0, n_jobs=-1),
        "adaptive": AdaptiveOLSEnsembleRegressor(random_state=0, n_jobs=-1),
    }
    errors = {}
    for name, model in models.items():
        start = time.perf_counter()
        model.fit(X, y)
        seconds = time.perf_counter() - start
        errors[name] = np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2))
        score = model.score(X_test, y_test)
        print(
            f"{name:>14}: test error {errors[name]:.3f} g/100 g, R2 {score:6.3f}, {seconds:.2f} s"
        )
    paper, adaptive = models["OLS ensemble"], models["adaptive"]
    print(f"the ensemble: {paper.n_estimators_} members of {paper.max_features_} wavelengths")
    weights = ", ".join(
        f"{weight:.0%} {scheme}" for scheme, weight in adaptive.scheme_weights_.items()
    )
    print(
        f"the adaptive ensemble: {adaptive.inclusion_.sum():.0f} wavelengths per member on average ({weights}), "
        f"cross-validated error {np.sqrt(-adaptive.best_score_):.3f}"
    )
    print(
        f"solver {adaptive.solver_}; {adaptive.n_fallbacks_} members refitted from the data, because their Gram matrix "
        f"was too ill-conditioned"
    )
    draw(y_test, adaptive.predict(X_test), errors, out)
    print(f"picture: {out}")


def draw(measured, predicted, errors, out: Path) -> None:
    """Predicted against measured carbon, and the test errors of all models."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    limits = [min(0, predicted.min()), 1.05 * max(measured.max(), predicted.max())]
    left.plot(limits, limits, color="0.6", lw=1)
    left.plot(measured, predicted, "o", ms=4, alpha=0.6, color="#0072B2")
    left.set(
        xlabel="measured carbon (g/100 g)", ylabel="predicted by the adaptive ensemble (g/100 g)"
    )
    left.set_title(f"{len(measured)} soils not used in the fit")
    labels = {
        "least squares": "least squares",
        "RidgeCV": "tuned ridge",
        "OLS ensemble": "ensemble,\nsize tuned",
        "adaptive": "adaptive\nensemble",
    }
    bars = right.barh(
        list(labels.values()),
        [errors[name] for name in labels],
        color=3 * ["#BBBBBB"] + ["#0072B2"],
    )
    right.bar_label(bars, fmt="%.2f", padding=3)
    right.invert_yaxis()
    right.margins(x=0.12)
    right.set(xlabel="error of their predictions (g/100 g)", title="the same soils, four models")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=Path("out/soil_carbon.png"), help="where the picture goes"
    )
    main(parser.parse_args().out)
