"""An ensemble that tunes itself with its defaults, against RidgeCV."""

from __future__ import annotations

from functools import partial

import peers
from olsen import AdaptiveOLSEnsembleRegressor
from problems import linear, one_hot
from timing import best, interleave, judged, summary

from .tables import REFERENCE
from .text import duration, limits, times

TITLE = "Tuned fits"
NOTE = (
    "Whole calls of `AdaptiveOLSEnsembleRegressor(n_jobs=2).fit`, all else at its defaults, in"
    " turns with `RidgeCV(np.geomspace(1e-3, 1e5, 50))`. The ratio is ours over RidgeCV's and is to"
    " be small. The one-hot table has 40 Gaussian columns and 42 factors with all their 288 levels;"
    " the other data are independent Gaussian columns."
)
# what, data, our time over RidgeCV's must be at most, aim
CASES = [
    ("one-hot", REFERENCE, 1.0, 0.3),
    ("Gaussian", partial(linear, 100, 50), 3.0, 1.0),
    ("Gaussian", partial(linear, 500, 200), 3.0, 1.0),
    ("Gaussian", partial(linear, 2000, 50), 3.0, 1.0),
    ("Gaussian", partial(linear, 100, 1000), 6.0, 2.0),
    ("Gaussian", partial(linear, 100, 4000), 6.0, 2.0),
    ("Gaussian", partial(linear, 500, 2000), 8.0, 2.0),
    ("Gaussian", partial(linear, 2000, 1000), 0.6, 0.3),
    ("Gaussian", partial(linear, 20_000, 300), 0.5, 0.25),
    ("Gaussian", partial(linear, 100_000, 50), 0.3, 0.15),
]
TOY_CASES = [
    ("one-hot", partial(one_hot, 60, numeric=4, factors=3, levels=10), 1.0, 0.3),
    ("Gaussian", partial(linear, 40, 10), 3.0, 1.0),
    ("Gaussian", partial(linear, 20, 30), 6.0, 2.0),
]


def run(quick: bool):
    for what, make, must, aim in TOY_CASES if quick else CASES:
        yield measure(what, *make(), must, aim, rounds=0 if quick else 2)


def measure(what, X, y, must, aim, rounds):
    def ours():
        return AdaptiveOLSEnsembleRegressor(n_jobs=2, random_state=0).fit(X, y)

    model = ours()
    measured = interleave({"olsen": ours, "RidgeCV": lambda: peers.ridge_cv().fit(X, y)}, rounds)
    took = best(measured)
    return {
        "shape": {"data": what, "n": X.shape[0], "p": X.shape[1]},
        **summary(measured),
        "size": float(model.inclusion_.sum()),
        "criterion": model.criterion_,
        "schemes": model.scheme_weights_,
        "fallbacks": model.n_fallbacks_,
        **judged(took["olsen"] / took["RidgeCV"], must, aim, better="less"),
    }


def cells(row):
    shape, took = row["shape"], row["seconds"]
    return {
        "data, n, p": ", ".join(map(str, shape.values())),
        "columns in a member": f"{row['size']:.4g} ({row['criterion']})",
        "fallbacks": str(row["fallbacks"]),
        "olsen": duration(took["olsen"]),
        "RidgeCV": duration(took["RidgeCV"]),
        "ratio": times(row["value"]),
        **limits(row),
    }
