"""Answers of about sixty configurations, frozen: code may change, these may not, unless a change is
wanted and said.

    python tests/test_goldens.py --write [NAME ...]

Every configuration is a function of nothing that gives arrays. Stored ones are compared to 1e-9 of
their largest entry.
"""

import json
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.model_selection import GroupKFold

import olsen
from olsen import (
    AdaptiveOLSEnsembleRegressor,
    DropoutRegressor,
    OLSEnsembleRegressor,
    OLSEnsembleRegressorCV,
    cli,
)

FILE = Path(__file__).parent / "goldens.npz"
RTOL = 1e-9
# thirty refits of a tuned model, with dependent columns that other BLAS kernels round otherwise
REFITS_RTOL = 1e-7


def table(n, p, q=None, seed=7):
    rng = np.random.default_rng(seed)
    X = (
        rng.standard_normal((n, p))
        @ np.linalg.cholesky(0.6 ** np.abs(np.subtract.outer(np.arange(p), np.arange(p)))).T
    )
    beta = rng.standard_normal((p, q or 1)) * (np.arange(p) % 4 == 0)[:, None]
    Y = 2 + X @ beta + rng.standard_normal((n, q or 1)) * np.linspace(1, 5, q or 1)
    return X, Y if q else Y[:, 0]


TALL, WIDE, TWO, LONG = table(90, 24), table(40, 70), table(90, 24, 2), table(1300, 15)
NEW = table(5, 24, seed=8)[0]


def one_hot(n=150):
    rng = np.random.default_rng(3)
    levels = [rng.integers(0, 4, n), rng.integers(0, 3, n)]
    X = np.column_stack(
        [rng.standard_normal((n, 4)), *(np.eye(k)[v] for k, v in zip((4, 3), levels, strict=True))]
    )
    return X, X[:, 0] + levels[0] - 2 * (levels[1] == 1) + rng.standard_normal(n)


def blocks(data):
    X, y = data
    cut = len(X) // 3
    return (lambda: iter([(X[:cut], y[:cut]), (X[cut:], y[cut:])])), None


def answers(model, X, *, interval=True, std=True):
    values = {"coef": model.coef_, "intercept": model.intercept_}
    new = NEW if X.shape[1] == 24 else X[:5]
    if interval:
        values["interval"] = model.predict_interval(new, 0.8)
    if std:
        values["std"] = model.predict(new, return_std=True)[1]
        values["coef_std"] = model.coef_std()
    if isinstance(model, OLSEnsembleRegressorCV):
        values["curve"] = model.risk_curve()[1]
    if not isinstance(model, OLSEnsembleRegressor):
        values["scale"] = model.scale_
        values["score"] = model.best_score_
    return values


def fixed(k=60, m=0.5, data=TALL, weight=None, *, interval=True, std=True, **settings):
    def run():
        model = OLSEnsembleRegressor(k, m, random_state=1, **settings).fit(
            *data, sample_weight=weight
        )
        return answers(model, data[0], interval=interval, std=std)

    return run


def fitted(model, data, weight, fit_params, where, *, interval, std):
    source = data if where is None else where(data)
    model.fit(*source, sample_weight=weight, **(fit_params or {}))
    return answers(model, data[0], interval=interval, std=std)


def cv(k=80, data=TALL, weight=None, *, interval=True, std=True, fit=None, where=None, **settings):
    def run():
        model = OLSEnsembleRegressorCV(k, random_state=1, **settings)
        return fitted(model, data, weight, fit, where, interval=interval, std=std)

    return run


def adaptive(data=TALL, weight=None, *, interval=True, std=True, fit=None, where=None, **settings):
    def run():
        model = AdaptiveOLSEnsembleRegressor(random_state=1, **settings)
        return fitted(model, data, weight, fit, where, interval=interval, std=std)

    return run


WEIGHTS = np.random.default_rng(5).uniform(0.5, 2, 90)
CONFIGURATIONS = {
    "fixed": fixed(),
    "independent": fixed(design="independent"),
    "bernoulli": fixed(sampling="bernoulli"),
    "bernoulli-independent": fixed(sampling="bernoulli", design="independent"),
    "probabilities": fixed(m=np.linspace(0.2, 0.8, 24), sampling="bernoulli"),
    "determinantal": fixed(sampling="determinantal"),
    "determinantal-limit": fixed(np.inf, sampling="determinantal"),
    "determinantal-limit-wide": fixed(np.inf, 0.3, WIDE, sampling="determinantal"),
    "determinantal-limit-weights": fixed(np.inf, weight=WEIGHTS, sampling="determinantal"),
    "weights": fixed(weight=WEIGHTS),
    "two-targets": fixed(data=TWO),
    "rows": fixed(k=200, max_samples=0.6),
    "no-intercept": fixed(fit_intercept=False),
    "scale": fixed(scale=0.8),
    "scale-auto": fixed(scale="auto"),
    "stacking": fixed(mixing="stacking", std=False, interval=False),
    "wide": fixed(m=12, data=WIDE),
    "interpolators": fixed(m=60, data=WIDE, std=False, interval=False),
    "one-hot": fixed(data=one_hot()),
    "sparse": fixed(
        data=(sp.csr_array(np.where(np.abs(TALL[0]) > 1, TALL[0], 0.0)), TALL[1]),
        interval=False,
        std=False,
    ),
    "blocks": lambda: answers(
        OLSEnsembleRegressor(60, 0.5, random_state=1).fit(*blocks(TALL)), TALL[0], std=False
    ),
    "partial-fit": lambda: answers(
        OLSEnsembleRegressor(60, 0.5, random_state=1).partial_fit(*TALL),
        TALL[0],
        interval=False,
        std=False,
    ),
    "solver-orthogonal": fixed(solver="orthogonal", interval=False, std=False),
    "single-precision": lambda: {
        "coef": OLSEnsembleRegressor(60, 0.5, random_state=1)
        .fit(TALL[0].astype(np.float32), TALL[1])
        .coef_.round(4)
    },
    "adaptive": adaptive(),
    "adaptive-members": adaptive(n_estimators=100),
    "adaptive-weights": adaptive(weight=WEIGHTS),
    "adaptive-two-targets": adaptive(data=TWO),
    "adaptive-wide": adaptive(data=WIDE),
    "adaptive-one-hot": adaptive(data=one_hot()),
    "adaptive-long": adaptive(data=LONG),
    "adaptive-blocks": adaptive(data=LONG, where=blocks),
    "adaptive-few-rows": adaptive(data=(TALL[0][:12, :5], TALL[1][:12])),
    "adaptive-noise": adaptive(data=(TALL[0], np.random.default_rng(9).standard_normal(90))),
    "adaptive-no-intercept": adaptive(fit_intercept=False),
    "adaptive-folds": adaptive(cv=5),
    "adaptive-groups": adaptive(cv=GroupKFold(5), fit={"groups": np.arange(90) % 10}),
    "adaptive-without-null": adaptive(schemes=["ridge", "power", "lasso", "sparse", "uniform"]),
    "ridge": cv(np.inf, sampling="determinantal", scale=1.0),
    "cv": cv(),
    "cv-auto": cv("auto"),
    "cv-gcv": cv(cv="gcv"),
    "cv-oob": cv(cv="oob", max_samples=0.7, std=False),
    "cv-folds": cv(cv=4),
    "cv-sizes": cv(max_features=[3, 6, 12]),
    "cv-two-targets": cv(data=TWO),
    "cv-wide": cv(data=WIDE),
    "cv-blocks": cv(data=LONG, where=blocks, std=False),
    "cv-blocks-gcv": cv(cv="gcv", data=LONG, where=blocks, std=False, interval=False),
    "cv-bernoulli": cv(sampling="bernoulli"),
    "dropout": lambda: {"coef": DropoutRegressor(0.4).fit(*TALL).coef_},
    "dropout-rescaled": lambda: {
        "coef": DropoutRegressor(0.4, rescale=True, sampling="fixed").fit(*TALL).coef_
    },
    "dropout-sgd": lambda: {
        "coef": DropoutRegressor(0.5, solver="sgd", max_iter=300, random_state=2).fit(*TALL).coef_
    },
    "members": lambda: {
        "coef": OLSEnsembleRegressor(7, 9, random_state=3).fit(*TALL).member_coefs().toarray()
    },
    "subsets": lambda: {
        kind + sampling: np.concatenate(
            list(
                OLSEnsembleRegressor(6, 8, sampling=sampling, design=kind, random_state=4)
                .fit(*TALL)
                .feature_subsets_
            )
        )
        for kind in ("balanced", "independent")
        for sampling in ("fixed", "bernoulli", "determinantal")
        if (kind, sampling) != ("independent", "determinantal")
    },
}


def through_dask():
    da = pytest.importorskip("dask.array")
    X, y = (da.from_array(part, chunks=(400, -1)[: part.ndim]) for part in LONG)
    return answers(AdaptiveOLSEnsembleRegressor(random_state=1).fit(X, y), LONG[0], std=False)


def through_file():
    model = AdaptiveOLSEnsembleRegressor(random_state=1).fit(*TALL)
    with tempfile.TemporaryDirectory() as folder:
        olsen.save(model, Path(folder) / "m.skops")
        return answers(olsen.load(Path(folder) / "m.skops"), TALL[0])


def through_command():
    """A table with numbers, categories, missing cells and dates, and predictions with intervals of
    it.
    """
    rng = np.random.default_rng(6)
    rows, lines = 120, ["area,district,built,sold,price"]
    for i in range(rows):
        area, place = round(rng.uniform(30, 200), 1), rng.choice(["north", "south", "hill"])
        price = round(3 * area + 40 * (place == "hill") + rng.normal(0, 20), 2)
        built = "" if i % 17 == 3 else int(rng.integers(1900, 2020))
        lines.append(f"{area},{place},{built},2024-{1 + i % 12:02d}-{1 + i % 28:02d},{price}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "t.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        model, out = str(folder / "m.skops"), folder / "p.csv"
        table_options = ["--missing", "mean", "--dates", "sold"]
        assert (
            cli.main(
                ["fit", str(folder / "t.csv"), "--target", "price", "--out", model, *table_options]
            )
            == 0
        )
        assert (
            cli.main(
                ["predict", model, str(folder / "t.csv"), "--out", str(out), "--interval", "0.9"]
            )
            == 0
        )
        return {"rows": np.genfromtxt(out, delimiter=",", skip_header=1)}


CONFIGURATIONS.update(dask=through_dask, file=through_file, command=through_command)


def run(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            f"{name}/{key}": np.asarray(value, dtype=float)
            for key, value in CONFIGURATIONS[name]().items()
        }


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_answers_are_those_frozen(name):
    stored = np.load(FILE)
    found = run(name)
    assert set(found) == {key for key in stored.files if key.partition("/")[0] == name}
    for key, value in found.items():
        largest = np.abs(stored[key][np.isfinite(stored[key])]).max(initial=0.0)
        rtol = REFITS_RTOL if name.startswith("adaptive") and key.endswith("std") else RTOL
        np.testing.assert_allclose(value, stored[key], rtol=0, atol=rtol * largest, err_msg=key)


if __name__ == "__main__":
    names = [name for name in sys.argv[1:] if name != "--write"] or list(CONFIGURATIONS)
    kept = dict(np.load(FILE)) if FILE.exists() else {}
    kept = {k: v for k, v in kept.items() if k.partition("/")[0] in CONFIGURATIONS}
    for name in names:
        kept = {k: v for k, v in kept.items() if k.partition("/")[0] != name} | run(name)
    np.savez_compressed(FILE, **kept)
    print(json.dumps({"configurations": len(names), "bytes": FILE.stat().st_size}))
