"""Intervals of predictions after a fit, over the time of the fit."""

from __future__ import annotations

from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV
from problems import linear
from timing import best, interleave, judged, summary

from .text import duration, limits, times

TITLE = "Intervals"
NOTE = (
    "`predict_interval` of 100 new rows, models with their defaults and `n_jobs=2`: from the folds"
    " of the adaptive ensemble, otherwise by the jackknife+. Fits alone and fits with the intervals"
    " after them take turns, since a model keeps what it has worked out for its first interval; the"
    " time of the intervals is the difference. The ratio is that time over the fit's and is to be"
    " small."
)
MUST, AIM = 2.0, 1.0
NEW_ROWS = 100
MODELS = (AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressorCV, OLSEnsembleRegressor)
SHAPES = [(300, 60), (2000, 200)]
TOY_SHAPES = [(60, 10)]
FIT, BOTH = "fit", "fit and intervals"


def run(quick: bool):
    for shape in TOY_SHAPES if quick else SHAPES:
        for model in MODELS:
            yield measure(*shape, model, rounds=0 if quick else 3)


def measure(n, p, model, rounds):
    X, y = linear(n, p)
    new, _ = linear(NEW_ROWS, p, seed=1)

    def fit():
        return model(n_jobs=2, random_state=0).fit(X, y)

    fit().predict_interval(new)  # compiles what is not cached
    measured = interleave({FIT: fit, BOTH: lambda: fit().predict_interval(new)}, rounds)
    took = best(measured)
    return {
        "shape": {"model": model.__name__, "n": n, "p": p},
        **summary(measured),
        **judged(took[BOTH] / took[FIT] - 1, MUST, AIM, better="less"),
    }


def cells(row):
    took = row["seconds"]
    return {
        "model, n, p": ", ".join(map(str, row["shape"].values())),
        "fit": duration(took[FIT]),
        "intervals": duration(max(took[BOTH] - took[FIT], 0.0)),
        "ratio": times(row["value"]),
        **limits(row),
    }
