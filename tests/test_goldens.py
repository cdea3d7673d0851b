"""Answers of about sixty configurations, frozen: code may change, answers may not, unless a change is
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
from numpy.testing import assert_allclose
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


TALL = table(90, 24)
WIDE = table(40, 70)
TWO = table(90, 24, 2)
LONG = table(1300, 15)
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


def frozen(model, data=TALL, weight=None, *, interval=True, std=True, fit=None, source=None):
    """Function that fits a model to data, or to what `source` makes of the data, and answers."""

    def run():
        rows = data if source is None else source(data)
        model.fit(*rows, sample_weight=weight, **(fit or {}))
        return answers(model, data[0], interval=interval, std=std)

    return run


def fixed(k=60, m=0.5, **parameters):
    return OLSEnsembleRegressor(k, m, random_state=1, **parameters)


def cv(k=80, **parameters):
    return OLSEnsembleRegressorCV(k, random_state=1, **parameters)


def adaptive(**parameters):
    return AdaptiveOLSEnsembleRegressor(random_state=1, **parameters)


COEF_ONLY = {"interval": False, "std": False}
WEIGHTS = np.random.default_rng(5).uniform(0.5, 2, 90)
CONFIGURATIONS = {
    "fixed": frozen(fixed()),
    "independent": frozen(fixed(design="independent")),
    "bernoulli": frozen(fixed(sampling="bernoulli")),
    "bernoulli-independent": frozen(fixed(sampling="bernoulli", design="independent")),
    "probabilities": frozen(fixed(m=np.linspace(0.2, 0.8, 24), sampling="bernoulli")),
    "determinantal": frozen(fixed(sampling="determinantal")),
    "determinantal-limit": frozen(fixed(np.inf, sampling="determinantal")),
    "determinantal-limit-wide": frozen(fixed(np.inf, 0.3, sampling="determinantal"), WIDE),
    "determinantal-limit-weights": frozen(fixed(np.inf, sampling="determinantal"), weight=WEIGHTS),
    "weights": frozen(fixed(), weight=WEIGHTS),
    "two-targets": frozen(fixed(), TWO),
    "rows": frozen(fixed(k=200, max_samples=0.6)),
    "no-intercept": frozen(fixed(fit_intercept=False)),
    "scale": frozen(fixed(scale=0.8)),
    "scale-auto": frozen(fixed(scale="auto")),
    "stacking": frozen(fixed(mixing="stacking"), **COEF_ONLY),
    "wide": frozen(fixed(m=12), WIDE),
    "interpolators": frozen(fixed(m=60), WIDE, **COEF_ONLY),
    "one-hot": frozen(fixed(), one_hot()),
    "sparse": frozen(
        fixed(), (sp.csr_array(np.where(np.abs(TALL[0]) > 1, TALL[0], 0.0)), TALL[1]), **COEF_ONLY
    ),
    "blocks": frozen(fixed(), source=blocks, std=False),
    "partial-fit": lambda: answers(fixed().partial_fit(*TALL), TALL[0], **COEF_ONLY),
    "solver-orthogonal": frozen(fixed(solver="orthogonal"), **COEF_ONLY),
    "single-precision": lambda: {
        "coef": fixed().fit(TALL[0].astype(np.float32), TALL[1]).coef_.round(4)
    },
    "adaptive": frozen(adaptive()),
    "adaptive-members": frozen(adaptive(n_estimators=100)),
    "adaptive-weights": frozen(adaptive(), weight=WEIGHTS),
    "adaptive-two-targets": frozen(adaptive(), TWO),
    "adaptive-wide": frozen(adaptive(), WIDE),
    "adaptive-one-hot": frozen(adaptive(), one_hot()),
    "adaptive-long": frozen(adaptive(), LONG),
    "adaptive-blocks": frozen(adaptive(), LONG, source=blocks),
    "adaptive-few-rows": frozen(adaptive(), (TALL[0][:12, :5], TALL[1][:12])),
    "adaptive-noise": frozen(adaptive(), (TALL[0], np.random.default_rng(9).standard_normal(90))),
    "adaptive-no-intercept": frozen(adaptive(fit_intercept=False)),
    "adaptive-folds": frozen(adaptive(cv=5)),
    "adaptive-groups": frozen(adaptive(cv=GroupKFold(5)), fit={"groups": np.arange(90) % 10}),
    "adaptive-without-null": frozen(
        adaptive(schemes=["ridge", "power", "lasso", "sparse", "uniform"])
    ),
    "ridge": frozen(cv(np.inf, sampling="determinantal", scale=1.0)),
    "cv": frozen(cv()),
    "cv-auto": frozen(cv("auto")),
    "cv-gcv": frozen(cv(cv="gcv")),
    "cv-oob": frozen(cv(cv="oob", max_samples=0.7), std=False),
    "cv-folds": frozen(cv(cv=4)),
    "cv-sizes": frozen(cv(max_features=[3, 6, 12])),
    "cv-two-targets": frozen(cv(), TWO),
    "cv-wide": frozen(cv(), WIDE),
    "cv-blocks": frozen(cv(), LONG, source=blocks, std=False),
    "cv-blocks-gcv": frozen(cv(cv="gcv"), LONG, source=blocks, **COEF_ONLY),
    "cv-bernoulli": frozen(cv(sampling="bernoulli")),
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
    return answers(adaptive().fit(X, y), LONG[0], std=False)


def through_file():
    model = adaptive().fit(*TALL)
    with tempfile.TemporaryDirectory() as folder:
        olsen.save(model, Path(folder) / "m.skops")
        return answers(olsen.load(Path(folder) / "m.skops"), TALL[0])


def through_command():
    """A table with numbers, categories, missing cells and dates, and predictions with intervals of
    it.
    """
    import pyarrow.parquet as pq

    rng = np.random.default_rng(6)
    lines = ["area,district,built,sold,price"]
    for i in range(120):
        area = round(rng.uniform(30, 200), 1)
        district = rng.choice(["north", "south", "hill"])
        price = round(3 * area + 40 * (district == "hill") + rng.normal(0, 20), 2)
        built = "" if i % 17 == 3 else int(rng.integers(1900, 2020))
        lines.append(f"{area},{district},{built},2024-{1 + i % 12:02d}-{1 + i % 28:02d},{price}")
    with tempfile.TemporaryDirectory() as name:
        table, model, out = (str(Path(name, file)) for file in ("t.csv", "m.skops", "p.parquet"))
        Path(table).write_text("\n".join(lines) + "\n", encoding="utf-8")
        table_options = ["--missing", "mean", "--dates", "sold"]
        fit = ["fit", table, "--target", "price", "--out", model, *table_options]
        assert cli.main(fit) == 0
        predict = ["predict", model, table, "--out", out, "--interval", "0.9"]
        assert cli.main(predict) == 0
        return {"rows": np.column_stack([column.to_numpy() for column in pq.read_table(out)])}


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
    answers_now = run(name)
    assert set(answers_now) == {key for key in stored.files if key.partition("/")[0] == name}
    for key, value in answers_now.items():
        largest = np.abs(stored[key][np.isfinite(stored[key])]).max(initial=0.0)
        rtol = REFITS_RTOL if name.startswith("adaptive") and key.endswith("std") else RTOL
        assert_allclose(value, stored[key], rtol=0, atol=rtol * largest, err_msg=key)


if __name__ == "__main__":
    names = [name for name in sys.argv[1:] if name != "--write"] or list(CONFIGURATIONS)
    unchanged = CONFIGURATIONS.keys() - set(names)
    stored = np.load(FILE) if FILE.exists() else {}
    answers_to_store = {k: stored[k] for k in stored if k.partition("/")[0] in unchanged}
    for name in names:
        answers_to_store |= run(name)
    np.savez_compressed(FILE, **answers_to_store)
    print(json.dumps({"configurations": len(names), "bytes": FILE.stat().st_size}))
