"""Dask arrays and data frames: the coefficients of arrays, whatever the chunks and the workers."""

import os
import signal
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain

import cloudpickle
import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from loops import assert_refused, case
from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen._data import dask_rows as plumbing
from olsen._execution import memory
from random_problems import linear_data

da, dd = pytest.importorskip("dask.array"), pytest.importorskip("dask.dataframe")
pd, distributed = pytest.importorskip("pandas"), pytest.importorskip("distributed")
N, P = 1200, 14
NAMES = list("abcdefghijklmn")
THREE = (OLSEnsembleRegressor, OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor)


@pytest.fixture(scope="module")
def client():
    """Two worker processes, as on a real cluster."""
    import dask

    quiet = {"distributed.worker.memory.terminate": False, "distributed.admin.log-length": 0}
    settings = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "processes": True,
        "dashboard_address": None,
    }
    with (
        dask.config.set(quiet),
        distributed.LocalCluster(silence_logs=50, **settings) as local,
        distributed.Client(local) as found,
    ):
        yield found


def data(seed, n=N, p=P, q=None):
    return linear_data(seed, n, p, q)


def ensemble(seed, **settings):
    return OLSEnsembleRegressor(15, 0.5, random_state=seed, **settings)


def assert_same(got, expected, tol=1e-8):
    np.testing.assert_allclose(got.coef_, expected.coef_, rtol=0, atol=tol)
    np.testing.assert_allclose(got.intercept_, expected.intercept_, rtol=tol)
    assert got.n_fallbacks_ == expected.n_fallbacks_


def lazy(X, y, chunks=111):
    return da.from_array(X, chunks=(chunks, X.shape[1])), da.from_array(y, chunks=chunks)


def lazy_frame(X):
    return dd.from_pandas(pd.DataFrame(X, columns=NAMES[: X.shape[1]]), npartitions=3)


def test_chunks_weights_and_settings_do_not_matter(seed):
    X, y, weight = data(seed)
    for dtype in (np.float64, np.float32):
        for chunks in ((300, P), (77, 5), ((1, 499, 700), P)):
            for w in (None, weight):
                with case(dtype, chunks, w is None):
                    given = [
                        da.from_array(X.astype(dtype), chunks=chunks),
                        da.from_array(y, chunks=123),
                    ]
                    model = ensemble(seed).fit(
                        *given, None if w is None else da.from_array(w, chunks=50)
                    )
                    expected = ensemble(seed).fit(X.astype(dtype).astype(float), y, w)
                    rounding = 2 * np.finfo(dtype).eps * np.abs(expected.coef_).max()
                    np.testing.assert_allclose(
                        model.coef_, expected.coef_, rtol=0, atol=1e-8 + rounding
                    )
                    predicted = model.predict(given[0])
                    assert (
                        isinstance(predicted, da.Array)
                        and predicted.chunks[0] == given[0].chunks[0]
                    )
                    assert model.coef_.dtype == predicted.dtype == dtype
                    np.testing.assert_allclose(
                        predicted.compute(), model.predict(X.astype(dtype)), rtol=1e-5
                    )
    X, Y, _ = data(seed, q=3)
    rows = da.from_array(X, chunks=(200, P)), da.from_array(Y, chunks=(90, 2))
    for settings in ({"fit_intercept": False}, {"scale": 0.7}, {"solver": "masked_cg"}):
        with case(settings):
            model = ensemble(seed, **settings).fit(*rows)
            assert_same(model, ensemble(seed, **settings).fit(X, Y), 1e-7)
            np.testing.assert_allclose(
                model.predict(rows[0]).compute(), model.predict(X), atol=1e-10
            )


def test_data_frames_with_targets_and_weights_of_every_kind(seed):
    X, y, weight = data(seed)
    frame = lazy_frame(X)
    table = dd.from_pandas(pd.DataFrame(X, columns=NAMES).assign(t=y, w=weight), npartitions=5)
    series = dd.from_pandas(pd.Series(y, name="y"), npartitions=7)
    for cls in THREE:
        make_model = partial(cls, n_estimators=10, random_state=0)
        expected = make_model().fit(lazy(X, y)[0], y, weight)
        given = {
            make.__name__: (frame, make(y), make(weight)) for make in (np.asarray, pd.Series, list)
        }
        for name, rows in (
            given | {"names": (table, "t", "w"), "series": (frame, series, weight)}
        ).items():
            with case(cls.__name__, name):
                model = make_model().fit(*rows)
                assert_same(model, expected)
                assert model.feature_names_in_.tolist() == NAMES
        doubled = make_model().fit(frame, y, 2.0)
        assert_same(doubled, make_model().fit(lazy(X, y)[0], y, np.full(N, 2.0)))
        assert cls(n_estimators=10).fit(table, ["t", "w"]).coef_.shape == (2, P)
    predicted = ensemble(seed).fit(frame, y).predict(frame).compute()
    np.testing.assert_allclose(predicted, ensemble(seed).fit(X, y).predict(X), atol=1e-7)
    whole = np.rint(3 * X)
    for rows in (
        lazy(whole.astype(object), y)[0],
        dd.from_pandas(pd.DataFrame(whole).astype("Int64"), npartitions=3),
    ):
        assert_same(ensemble(seed).fit(rows, y), ensemble(seed).fit(whole, y), 1e-7)


def test_tuning_is_that_of_blocks_and_row_subsets_are_refused(seed):
    X, y, _ = data(seed)
    assert_refused(
        ensemble(seed, max_samples=0.5), lazy(X, y), "max_samples=0.5", "array in memory"
    )
    tuned = [
        OLSEnsembleRegressorCV(20, random_state=seed),
        OLSEnsembleRegressorCV(20, sampling="determinantal", random_state=seed),
        AdaptiveOLSEnsembleRegressor(n_estimators=20, random_state=seed),
    ]
    for model in tuned:
        with case(model):
            expected = clone(model).fit(iter([(X, y)]), None)
            model.fit(*lazy(X, y))
            assert model.criterion_ == "kfold" and model.scale_ == pytest.approx(expected.scale_)
            if isinstance(model, OLSEnsembleRegressorCV):
                assert model.max_features_ == pytest.approx(expected.max_features_, rel=1e-9)
            else:
                assert model.scheme_weights_ == pytest.approx(expected.scheme_weights_)
            scores = model.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"]
            np.testing.assert_allclose(*scores, rtol=1e-9)
            assert_same(model, expected)


def test_a_gram_matrix_that_does_not_fit_is_refused(seed, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 1e6)
    rows = da.zeros((5000, 3000), chunks=(100, 3000)), da.zeros(5000, chunks=100)
    assert_refused(ensemble(seed), rows, "3000 columns", error=MemoryError)


def test_no_more_rows_than_columns_are_loaded(seed):
    X, y, weight = data(seed, n=25, p=60)
    for max_samples in (1.0, 9):
        settings = {"max_features": 40, "max_samples": max_samples, "random_state": seed}
        for w in (None, weight, 2.0):
            model = OLSEnsembleRegressor(15, **settings).fit(*lazy(X, y, 9), w)
            assert model.solver_ == "interpolator"
            assert_same(model, OLSEnsembleRegressor(15, **settings).fit(X, y, w))
    frame = pd.DataFrame(X[:10, :P], columns=NAMES)
    loaded = ensemble(seed).fit(dd.from_pandas(frame, npartitions=2), y[:10])
    assert loaded.feature_names_in_.tolist() == NAMES and loaded.member_coefs().shape == (15, P)


def test_distrusted_members_get_a_triangular_factor_from_the_cluster(seed):
    X, y, _ = data(seed)
    X[:, 1] = X[:, 0] + 1e-7 * X[:, 1]  # not dependent, and too near to be refined
    expected = ensemble(seed).fit(X, y)
    assert expected.n_fallbacks_ > 0
    assert_same(ensemble(seed).fit(*lazy(X, y)), expected, 1e-8 * np.abs(expected.coef_).max())


def test_bad_input_is_named_and_leaves_nothing_behind(seed):
    X, y, weight = data(seed)
    rows, target = lazy(X, y)
    spoilt, huge = X.copy(), X.copy()
    spoilt[333, 2], huge[333, 2] = np.nan, 1e200
    frame = pd.DataFrame(X, columns=NAMES)
    table = dd.from_pandas(frame.assign(t=y), npartitions=3)
    in_frame = lambda **columns: dd.from_pandas(frame.assign(**columns), npartitions=3)  # noqa: E731
    cases = [
        ((rows[rows[:, 0] > 0], target), "nan", "compute_chunk_sizes()"),
        ((lazy(spoilt, y)[0], target), "block 3", "rows 333 to 443", "in X, in 1 rows: 333"),
        ((lazy(huge, y)[0], target), "block 3", "column 2 of X"),
        ((lazy_frame(spoilt), y), "block 0", "in X, in 1 rows: 333"),
        ((rows, target[:-1]), "1199", "1200"),
        ((rows, None), "y is None"),
        ((rows[:, 0], target), "(1200,)"),
        ((rows, target, weight[:, None]), "sample_weight has 2 dimensions"),
        ((rows, target, da.ones((N, 1), chunks=20)), "sample_weight has 2 dimensions"),
        (
            (rows, y, np.where(np.arange(N) == 3, np.nan, 1.0)),
            "block 0",
            "sample_weight, in 1 rows: 3",
        ),
        (
            (rows, y, np.where(np.arange(N) == 300, -5.0, 1.0)),
            "block 2",
            "negative",
            "in 1 rows: 300",
        ),
        ((table, "price"), "'price'", "'a'"),
        ((table, "t", "v"), "'v'"),
        ((rows, "t"), "'t'"),
        ((table[["t"]], "t"), "for X", "'t'"),
        ((lazy(X + 1j, y)[0], y), "X of block", "complex128"),
        ((rows, y + 1j), "y of block", "complex128"),
        ((rows, y.astype(str)), "y of block", "<U"),
        ((rows, y.astype(str).astype(object) + "x"), "y of block", "could not convert"),
        ((in_frame(t="u", s=1, z="v"), y), "2 of 17 columns", "'t', 'z'"),
        ((in_frame(z=pd.Categorical(range(N))), y), "1 of 15 columns", "'z'"),
        ((in_frame(a=1j), y), "'a'"),
    ]
    for given, *facts in cases:
        for cls in THREE:
            with case(cls.__name__, *facts):
                assert_refused(cls(n_estimators=5), given, *facts)
    for positive in (0, 1):
        few = (np.arange(N) < positive).astype(float)
        for given in (rows, lazy_frame(X)):
            assert_refused(
                ensemble(seed),
                (given, y, few),
                f"positive for {positive} of 1200 rows",
                "at least 2",
            )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        some = (np.arange(N) >= 300).astype(float)
        assert_same(ensemble(seed).fit(rows, y, some), ensemble(seed).fit(X[300:], y[300:]), 1e-7)


def test_the_model_knows_its_columns(seed):
    """In scikit-learn's words, wherever rows are."""
    X, y, _ = data(seed)
    frame = pd.DataFrame(X, columns=NAMES)
    model = ensemble(seed).fit(frame, y)
    there = model.predict(dd.from_pandas(frame, npartitions=2)).compute()
    np.testing.assert_allclose(there, model.predict(frame))
    for columns in (NAMES[::-1], [*NAMES[:-1], "z"], NAMES[:3], [*NAMES, "z"]):
        other = pd.DataFrame(np.ones((9, len(columns))), columns=columns)
        with pytest.raises(ValueError) as expected:
            model.predict(other)
        with pytest.raises(ValueError) as found:
            model.predict(dd.from_pandas(other, npartitions=2))
        assert str(found.value) == str(expected.value)
    model = ensemble(seed).fit(*lazy(X, y))
    for given in (lazy(X[:, :3], y)[0], lazy_frame(X[:, :3])):
        with (
            pytest.raises(ValueError, match=r"(?s)3 features.*14 features"),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            model.predict(given)
    for given in (lazy(X, y)[1], lazy_frame(X)["a"]):
        with pytest.raises(ValueError, match="1 dimensions"):
            model.predict(given)


def test_merges_go_in_order_whatever_the_number():
    for count in (1, 7, 8, 9, 70):
        merged = plumbing.compute(
            plumbing.tree([[i] for i in range(count)], lambda parts: list(chain(*parts)))
        )[0]
        assert merged == list(range(count))


def test_on_a_cluster_nothing_of_the_length_of_the_data_comes_home(client, seed, monkeypatch):
    """The rows are made on the workers; what the client receives is counted."""
    rng = da.random.default_rng(seed)
    X = rng.standard_normal((200_000, 20), chunks=(20_000, 20))
    y = X.sum(axis=1) + rng.standard_normal(200_000, chunks=20_000)
    sizes, plain = [], plumbing.compute

    def counted(*values):
        found = plain(*values)
        sizes.append(len(cloudpickle.dumps(found)))
        return found

    monkeypatch.setattr(plumbing, "compute", counted)
    model = ensemble(seed).fit(X, y)
    assert sizes and max(sizes) < 10_000
    assert (
        abs(
            model.predict(X)[:5].compute() - (X[:5] @ model.coef_ + model.intercept_).compute()
        ).max()
        < 1e-9
    )


def _slow_rows(X, folder):
    """A Dask array of 24 chunks that take their time; every run of one leaves the worker's process
    id in `folder`.
    """

    def slowly(block):
        import tempfile

        tempfile.NamedTemporaryFile(dir=folder, prefix=f"{os.getpid()}-", delete=False).close()
        time.sleep(0.05)
        return block

    return da.from_array(X, chunks=(100, P)).map_blocks(slowly, dtype=X.dtype, meta=X[:0])


def _kill_a_busy_worker(folder, after):
    """Wait for `after` runs of chunks, then kill the process that made the last of them."""
    deadline = time.monotonic() + 60
    while len(runs := sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)) < after:
        assert time.monotonic() < deadline, "no worker ever ran a chunk"
        time.sleep(0.005)
    victim = int(runs[-1].name.split("-")[0])
    os.kill(victim, signal.SIGKILL)
    return victim, time.monotonic()


def test_killing_a_worker_changes_nothing(client, seed, tmp_path):
    """The worker dies while it holds the sums of some chunks and works on another, so chunks must
    be made again.

    The tuned fit: it reads the sums that a plain one reads, by folds.
    """
    X, y, _ = data(seed, n=2400)
    y = y + 60 * np.random.default_rng(seed).standard_normal(
        len(y)
    )  # so that tuning stops short of all columns
    target = da.from_array(y, chunks=100)
    undisturbed, disturbed = tmp_path / "undisturbed", tmp_path / "disturbed"
    undisturbed.mkdir(), disturbed.mkdir()
    expected = AdaptiveOLSEnsembleRegressor(n_estimators=30, random_state=seed).fit(
        _slow_rows(X, undisturbed), target
    )
    assert len(list(undisturbed.iterdir())) == 24
    workers = set(client.run(os.getpid).values())
    with ThreadPoolExecutor(1) as killer:
        kill = killer.submit(_kill_a_busy_worker, disturbed, 8)
        model = AdaptiveOLSEnsembleRegressor(n_estimators=30, random_state=seed).fit(
            _slow_rows(X, disturbed), target
        )
        fitted = time.monotonic()
        victim, killed = kill.result()
    assert victim in workers and killed < fitted
    assert len(list(disturbed.iterdir())) > 24
    assert victim not in client.run(os.getpid).values()
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    assert model.intercept_ == expected.intercept_
    assert expected.inclusion_.sum() < P and model.scheme_weights_ == expected.scheme_weights_
    assert model.best_score_ == expected.best_score_
    for name, values in expected.cv_results_.items():
        np.testing.assert_array_equal(model.cv_results_[name], values, err_msg=name)


def test_fits_that_are_tasks_of_a_grid_search(client, seed):
    X, y, _ = data(seed)
    client.wait_for_workers(2, timeout=60)  # another test may have killed one
    with joblib.parallel_config("dask"):
        scores = cross_val_score(ensemble(seed), X, y, cv=3)
    np.testing.assert_allclose(scores, cross_val_score(ensemble(seed), X, y, cv=3), rtol=1e-12)
