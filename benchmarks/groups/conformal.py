"""Prediction intervals of the adaptive model beside conformal intervals around RidgeCV."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import KFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from olsen import AdaptiveOLSEnsembleRegressor
from peers import ridge_cv
from problems import linear
from real_data import read

from .text import duration

TITLE = "Intervals beside conformal prediction"
NOTE = (
    "Intervals of nominal coverage 90 % on ten random splits of each table, a fifth of the rows new."
    ' MAPIE is `CrossConformalRegressor` with `method="plus"` and ten folds, crepes is'
    " `WrapRegressor` calibrated on a quarter of the training rows, both around a StandardScaler and"
    " RidgeCV. The interval score is the width plus 20 times the distance of targets outside, over"
    " the standard deviation of the target, ± its standard error over the splits: lower is better."
    " CPU is the time of a fit with its intervals. Splits in which a method has infinite intervals"
    " leave it without a score. A library that is not installed has no entry."
)
COVERAGE = 0.9
SPLITS = 10

Intervals = Callable[[np.ndarray, np.ndarray, np.ndarray, int], np.ndarray]


def run(quick: bool, data: Path | None = None) -> Iterator[dict]:
    for name, X, y in problems(quick, data):
        yield measure(name, X, y, splits=2 if quick else SPLITS)


def problems(quick: bool, data: Path | None) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    if quick:
        yield "Gaussian", *linear(60, 5)
        return
    yield "diabetes", *load_diabetes(return_X_y=True)
    for path in sorted(data.glob("*.csv")) if data else ():
        yield path.stem, *read(path)


def measure(name: str, X: np.ndarray, y: np.ndarray, splits: int) -> dict:
    row: dict = {"shape": {"data": name, "n": len(X), "p": X.shape[1]}}
    for contender, intervals in contenders().items():
        coverages = []
        scores = []
        start = process_time()
        for seed in range(splits):
            train, new, target, truth = train_test_split(X, y, test_size=0.2, random_state=seed)
            ends = intervals(train, target, new, seed)
            coverages.append(np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1])))
            scores.append(interval_score(ends, truth) / y.std())
        finite = bool(np.all(np.isfinite(scores)))
        row[contender] = {
            "coverage": float(np.mean(coverages)),
            "score": float(np.mean(scores)) if finite else None,
            "score_standard_error": float(np.std(scores, ddof=1) / np.sqrt(splits))
            if finite
            else None,
            "seconds": (process_time() - start) / splits,
        }
    return row


def interval_score(ends: np.ndarray, truth: np.ndarray) -> float:
    """Mean width plus 2 / (1 - coverage) times the distance of targets outside."""
    outside = np.maximum(ends[:, 0] - truth, 0) + np.maximum(truth - ends[:, 1], 0)
    return float(np.mean(ends[:, 1] - ends[:, 0] + 2 / (1 - COVERAGE) * outside))


def contenders() -> dict[str, Intervals]:
    """Functions of training rows, target, new rows and a seed, with the ends of intervals."""
    installed: dict[str, Intervals] = {"olsen": by_olsen}
    if importlib.util.find_spec("mapie"):
        installed["MAPIE"] = by_mapie
    if importlib.util.find_spec("crepes"):
        installed["crepes"] = by_crepes
    return installed


def by_olsen(X, y, new, seed):
    model = AdaptiveOLSEnsembleRegressor(random_state=seed).fit(X, y)
    return model.predict_interval(new, COVERAGE)


def by_mapie(X, y, new, seed):
    from mapie.regression import CrossConformalRegressor

    regressor = CrossConformalRegressor(
        make_pipeline(StandardScaler(), ridge_cv()),
        confidence_level=COVERAGE,
        method="plus",
        cv=KFold(10, shuffle=True, random_state=seed),
    )
    return regressor.fit_conformalize(X, y).predict_interval(new)[1][:, :, 0]


def by_crepes(X, y, new, seed):
    from crepes import WrapRegressor

    X, calibration, y, target = train_test_split(X, y, test_size=0.25, random_state=seed)
    regressor = WrapRegressor(make_pipeline(StandardScaler(), ridge_cv()))
    regressor.fit(X, y)
    regressor.calibrate(calibration, target)
    return regressor.predict_int(new, confidence=COVERAGE)


def cells(row):
    shown = {}
    for name, result in row.items():
        if name != "shape":
            score = "infinite"
            if result["score"] is not None:
                score = f"{result['score']:.2f} ± {result['score_standard_error']:.2f}"
            shown[f"{name}: coverage"] = f"{result['coverage']:.3f}"
            shown[f"{name}: score"] = score
            shown[f"{name}: CPU"] = duration(result["seconds"])
    return {"data, n, p": ", ".join(map(str, row["shape"].values())), **shown}
