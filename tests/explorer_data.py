"""The numbers of the explorer's data set: ensembles on soil spectra, for every pair of size and
number of members.

    python tests/explorer_data.py

writes them anew into ``soil.json`` of the explorer. They are functions of the data and the seed;
rounding to the stored digits hides what another machine computes differently.
"""

import json
from pathlib import Path

import numpy as np
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from olsen import OLSEnsembleRegressor, explorer
from olsen.datasets import load_soil_carbon

SIZES = (5, 10, 20, 40, 80, 160, 320, 440)
MEMBERS = (1, 2, 4, 16, 64, 256)
UNIT = 0.001  # of carbon, g per 100 g


def split():
    """Rows to fit and rows to predict, two to one: X, y, X of new soils, y of new soils, these by
    their carbon.
    """
    X, y = load_soil_carbon(return_X_y=True)
    left_out = (
        np.arange(len(y)) * 7919 % len(y) < len(y) // 3
    )  # a prime parts neighbours, maybe of one field
    new = np.flatnonzero(left_out)[np.argsort(y[left_out], kind="stable")]
    return X[~left_out], y[~left_out], X[new], y[new]


def fit(size, members):
    """One ensemble: coefficients, predictions of new soils and their intervals, in whole numbers of
    small units.
    """
    X, y, X_new, y_new = split()
    model = OLSEnsembleRegressor(members, size, random_state=0).fit(X, y)
    predicted = model.predict(X_new)
    interval = model.predict_interval(X_new, 0.9)
    effect = model.coef_ * X.std(axis=0)
    scale = float(f"{np.abs(effect).max() / 2000:.4g}")  # steps from zero to the largest
    is_inside = (interval[:, 0] <= y_new) & (y_new <= interval[:, 1])
    return {
        "m": size,
        "k": members,
        "rmse": _rounded(np.sqrt(np.mean((predicted - y_new) ** 2))),
        "coverage": _rounded(is_inside.mean()),
        "width": _rounded(np.mean(interval[:, 1] - interval[:, 0])),
        "scale": scale,
        "effect": _whole(effect / scale),
        "predicted": _whole(predicted / UNIT),
        "lower": _whole(interval[:, 0] / UNIT),
        "upper": _whole(interval[:, 1] / UNIT),
    }


def ridge_error():
    """Root mean squared error on the new soils of ridge regression, its penalty chosen by
    leave-one-out.
    """
    X, y, X_new, y_new = split()
    model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-8, 4, 61))).fit(X, y)
    return _rounded(np.sqrt(np.mean((model.predict(X_new) - y_new) ** 2)))


def export():
    """All of it."""
    X, _, _, y_new = split()
    return {
        "wavelength": [1100, 2],
        "fitted": len(X),
        "unit": UNIT,
        "observed": _whole(y_new / UNIT),
        "ridge": ridge_error(),
        "fits": [fit(size, members) for size in SIZES for members in MEMBERS],
    }


def _whole(values):
    return [int(value) for value in np.rint(values)]


def _rounded(value):
    return float(f"{value:.4g}")


if __name__ == "__main__":
    text = json.dumps(export(), separators=(",", ":"))
    Path(explorer.__file__).with_name("soil.json").write_text(text + "\n", encoding="utf-8")
