"""Models as ONNX: what onnxruntime computes is what `predict` says, from one node."""

import importlib
import sys
from itertools import product

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import olsen
from loops import case
from olsen import (
    AdaptiveOLSEnsembleRegressor,
    DropoutRegressor,
    OLSEnsembleRegressor,
    OLSEnsembleRegressorCV,
)

skl2onnx = pytest.importorskip("skl2onnx")
onnxruntime = pytest.importorskip("onnxruntime")

ESTIMATORS = {
    "members": OLSEnsembleRegressor(20, random_state=0),
    "no intercept": OLSEnsembleRegressor(20, fit_intercept=False, random_state=0),
    "size tuned": OLSEnsembleRegressorCV(20, random_state=0),
    "adaptive": AdaptiveOLSEnsembleRegressor(n_estimators=20, random_state=0),
    "dropout": DropoutRegressor(),
    "dropout without intercept": DropoutRegressor(fit_intercept=False, rescale=True),
}


@pytest.fixture(params=ESTIMATORS.values(), ids=ESTIMATORS.keys())
def estimator(request):
    return clone(request.param)


def problem(n_targets=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((80, 12))
    y = (
        X @ rng.standard_normal((12, n_targets or 1))
        + 3.0
        + rng.standard_normal((80, n_targets or 1))
    )
    return X, y if n_targets else y[:, 0]


def session(proto):
    return onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )


def computed(proto, X):
    """What the runtime gives, from one input or from one for each column of a data frame."""
    running = session(proto)
    names = [tensor.name for tensor in running.get_inputs()]
    (out,) = running.run(
        None, {"X": X} if names == ["X"] else {name: X[[name]].to_numpy() for name in names}
    )
    return out


def kinds(proto):
    return [node.op_type for node in proto.graph.node]


def same(out, predicted, tolerance):
    """Equal, relative to the largest prediction; a vector is one column there."""
    assert out.shape == (len(predicted), 1 if predicted.ndim == 1 else predicted.shape[1])
    return (
        np.abs(out.reshape(predicted.shape) - predicted).max()
        <= tolerance * np.abs(predicted).max()
    )


def test_one_node_computes_what_predict_says(estimator):
    for n_targets, (dtype, tolerance) in product([None, 1, 3], [("f4", 1e-6), ("f8", 1e-14)]):
        with case(n_targets, dtype):
            X, y = problem(n_targets)
            model = estimator.fit(X, y)
            rows = X.astype(dtype)
            proto = olsen.onnx.to_onnx(model, rows)
            out = computed(proto, rows)
            assert kinds(proto) == ["Gemm"] and out.dtype == dtype
            assert same(out, model.predict(rows), tolerance)
    X, y = (array.astype(np.float32) for array in problem())
    model = estimator.fit(X, y)
    assert same(computed(olsen.onnx.to_onnx(model, X), X), model.predict(X), 1e-6)


def test_whole_numbers_and_booleans_become_single():
    for kind in ("i8", "?"):
        X, y = problem()
        X = (4 * X).astype("i8").astype(kind)
        model = OLSEnsembleRegressor(20, random_state=0).fit(X, y)
        proto = olsen.onnx.to_onnx(model, X)
        assert kinds(proto) == ["Cast", "Gemm"], kind
        assert same(computed(proto, X), model.predict(X), 1e-6), kind


def test_types_are_those_of_scikit_learns_linear_regression(estimator):
    """Inputs and outputs have the names, types and shapes that skl2onnx gives to LinearRegression."""

    def ends(proto):
        running = session(proto)
        return [
            (tensor.name, tensor.type, tensor.shape)
            for tensor in (*running.get_inputs(), *running.get_outputs())
        ]

    for n_targets in (None, 3):
        X, y = problem(n_targets)
        for rows in (X, X.astype("f4"), (9 * X).astype("i8"), X > 0):
            peer = skl2onnx.to_onnx(LinearRegression().fit(X, y), rows[:1])
            assert ends(olsen.onnx.to_onnx(estimator.fit(X, y), rows)) == ends(peer)


def test_options_are_those_of_skl2onnx():
    X, y = problem()
    proto = olsen.onnx.to_onnx(OLSEnsembleRegressor(20).fit(X, y), X, name="soil", target_opset=15)
    assert proto.graph.name == "soil"
    assert {opset.domain: opset.version for opset in proto.opset_import}[""] == 15


def test_pipelines_and_searches(estimator):
    X, y = problem()
    olsen.onnx.register()
    pipeline = make_pipeline(StandardScaler(), estimator).fit(X, y)
    search = GridSearchCV(clone(estimator), {"fit_intercept": [True, False]}, cv=2).fit(X, y)
    for dtype in ("f4", "f8"):
        rows = X.astype(dtype)
        assert same(
            computed(skl2onnx.to_onnx(pipeline, rows[:1]), rows), pipeline.predict(rows), 2e-6
        ), dtype
        assert computed(olsen.onnx.to_onnx(pipeline, rows), rows).dtype == dtype
        assert same(
            computed(skl2onnx.to_onnx(search, rows[:1]), rows), search.predict(rows), 1e-6
        ), dtype


def test_data_frames_and_lists_and_sparse_rows():
    X, y = problem()
    frame = pd.DataFrame(X[:, :3], columns=["ash", "clay", "sand"])
    model = OLSEnsembleRegressor(20, random_state=0).fit(frame, y)
    for rows in (frame, frame.to_numpy().tolist(), sp.csc_array(frame.to_numpy())):
        assert same(
            computed(olsen.onnx.to_onnx(model, rows), frame.to_numpy()), model.predict(frame), 1e-14
        )
    mixed = frame.assign(kind=np.where(X[:, 3] > 0, "peat", "loam"))
    columns = make_column_transformer(
        (StandardScaler(), ["ash", "clay", "sand"]), (OneHotEncoder(), ["kind"])
    )
    pipeline = make_pipeline(columns, OLSEnsembleRegressor(20, random_state=0)).fit(mixed, y)
    proto = olsen.onnx.to_onnx(pipeline, mixed)
    assert [tensor.name for tensor in session(proto).get_inputs()] == list(mixed.columns)
    assert same(computed(proto, mixed), pipeline.predict(mixed), 1e-6)


def test_models_that_cannot_be_converted_are_refused():
    X, y = problem()
    with pytest.raises(NotFittedError, match="OLSEnsembleRegressor"):
        olsen.onnx.to_onnx(OLSEnsembleRegressor(), X)
    with pytest.raises(
        ValueError, match="rows have 5 columns, but OLSEnsembleRegressor was fitted on 12"
    ):
        olsen.onnx.to_onnx(OLSEnsembleRegressor().fit(X, y), X[:, :5])


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "skl2onnx", None)
    importlib.reload(olsen.onnx)  # the library is not imported before it is used
    for use in (olsen.onnx.register, lambda: olsen.onnx.to_onnx(DropoutRegressor(), [[0.0]])):
        with pytest.raises(
            ModuleNotFoundError, match=r"needs skl2onnx.*pip install 'olsen\[onnx\]'"
        ):
            use()


def test_coefficients_beyond_single_precision_need_double_rows(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 4)) * 1e-20
    model = OLSEnsembleRegressor(5, random_state=0).fit(X.astype(np.float32), X[:, 0] * 1e40)
    with pytest.raises(ValueError, match=r"e\+.*single precision.*float64"):
        olsen.onnx.to_onnx(model, X.astype(np.float32))
    session = onnxruntime.InferenceSession(olsen.onnx.to_onnx(model, X).SerializeToString())
    np.testing.assert_allclose(session.run(None, {"X": X})[0][:, 0], model.predict(X), rtol=1e-6)
