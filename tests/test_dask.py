"""Dask arrays and data frames: the coefficients of arrays, whatever the chunks and the workers."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
from sklearn.model_selection import cross_val_score

from olsen import OLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen._engines import dask as plumbing

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
N, P = 900, 14
CHUNKS = [(300, P), (77, 5), ((1, 499, 400), P)]


@pytest.fixture(scope="module")
def client():
    """Two worker processes, as on a real cluster."""
    import dask

    quiet = {"distributed.worker.memory.terminate": False, "distributed.admin.log-length": 0}
    settings = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with (
        dask.config.set(quiet),
        distributed.LocalCluster(silence_logs=50, **settings) as local,
        distributed.Client(local) as found,
    ):
        yield found


def data(seed, n=N, p=P, q=None):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + 20 * rng.standard_normal(p)
    Y = X @ rng.standard_normal((p, q or 1)) + rng.standard_normal((n, q or 1)) + 7
    return X, Y if q else Y[:, 0], rng.integers(0, 3, n).astype(float)


def ensemble(seed, **settings):
    return OLSEnsembleRegressor(15, 0.5, random_state=seed, **settings)


def assert_same(got, expected, tol=1e-8):
    np.testing.assert_allclose(got.coef_, expected.coef_, rtol=0, atol=tol)
    np.testing.assert_allclose(got.intercept_, expected.intercept_, rtol=tol)
    assert got.n_fallbacks_ == expected.n_fallbacks_


@pytest.mark.parametrize("chunks", CHUNKS, ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_chunks_do_not_matter(chunks, weighted, seed):
    X, y, weight = data(seed)
    weight = weight if weighted else None
    given = [da.from_array(X, chunks=chunks), da.from_array(y, chunks=123)]
    model = ensemble(seed).fit(*given, None if weight is None else da.from_array(weight, chunks=50))
    expected = ensemble(seed).fit(X, y, weight)
    assert_same(model, expected)
    predicted = model.predict(given[0])
    assert isinstance(predicted, da.Array) and predicted.chunks[0] == given[0].chunks[0]
    np.testing.assert_allclose(predicted.compute(), expected.predict(X), atol=1e-7)


@pytest.mark.parametrize("settings", [{"fit_intercept": False}, {"scale": 0.7}, {"solver": "masked_cg"}], ids=str)
def test_settings_and_several_targets(settings, seed):
    X, Y, _ = data(seed, q=3)
    lazy = da.from_array(X, chunks=(200, P)), da.from_array(Y, chunks=(90, 2))
    model = ensemble(seed, **settings).fit(*lazy)
    assert_same(model, ensemble(seed, **settings).fit(X, Y), 1e-7)
    np.testing.assert_allclose(model.predict(lazy[0]).compute(), model.predict(X), atol=1e-10)


def test_data_frames(seed):
    dd, pd = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    X, y, _ = data(seed)
    table = pd.DataFrame(X, columns=[f"x{j}" for j in range(P)])
    frame = dd.from_pandas(table, npartitions=5)
    target = dd.from_pandas(pd.Series(y, name="y"), npartitions=5)
    model, expected = ensemble(seed).fit(frame, target), ensemble(seed).fit(table, y)
    assert_same(model, expected)
    assert model.feature_names_in_.tolist() == expected.feature_names_in_.tolist()
    np.testing.assert_allclose(model.predict(frame).compute(), expected.predict(table), atol=1e-7)
    rows = [ensemble(seed, max_samples=0.5).fit(*given).coef_ for given in ((frame, target), _arrays(X, y))]
    np.testing.assert_allclose(*rows, atol=1e-9)


def _arrays(X, y, chunks=111):
    return da.from_array(X, chunks=(chunks, X.shape[1])), da.from_array(y, chunks=chunks)


def test_row_subsets_are_the_same_groups_as_in_blocks(seed):
    X, y, _ = data(seed)
    found = [ensemble(seed, max_samples=0.5).fit(*_arrays(X, y, chunks)) for chunks in (900, 250)]
    assert_same(found[0], found[1])
    assert_same(found[0], ensemble(seed, max_samples=0.5).fit(iter([(X, y)]), None))


@pytest.mark.parametrize("inclusion", ["uniform", "ridge", "auto"])
def test_tuning_is_that_of_blocks(inclusion, seed):
    X, y, _ = data(seed)
    settings = {"random_state": seed, "inclusion": inclusion}
    model = OLSEnsembleRegressorCV(20, **settings).fit(*_arrays(X, y))
    expected = OLSEnsembleRegressorCV(20, **settings).fit(iter([(X, y)]), None)
    assert model.criterion_ == "kfold" and model.max_features_ == expected.max_features_
    assert (model.inclusion_kind_, model.scale_) == (expected.inclusion_kind_, pytest.approx(expected.scale_))
    np.testing.assert_allclose(model.cv_results_["mse"], expected.cv_results_["mse"], rtol=1e-9)
    assert_same(model, expected)


def test_a_gram_matrix_that_does_not_fit_is_refused(seed, monkeypatch):
    monkeypatch.setattr(plumbing.memory, "available_bytes", lambda: 1e6)
    lazy = da.zeros((5000, 3000), chunks=(100, 3000)), da.zeros(5000, chunks=100)
    for settings, words in ({}, "3000 columns .*fewer columns"), ({"max_samples": 0.5}, "20 Gram .*max_samples=1.0"):
        with pytest.raises(MemoryError, match=words):
            ensemble(seed, **settings).fit(*lazy)


@pytest.mark.parametrize("max_samples", [1.0, 9])
def test_fewer_rows_than_columns_are_loaded(max_samples, seed):
    X, y, weight = data(seed, n=25, p=60)
    settings = {"max_features": 40, "max_samples": max_samples, "random_state": seed}
    for w in (None, weight):
        model = OLSEnsembleRegressor(15, **settings).fit(*_arrays(X, y, 9), w)
        assert model.solver_ == "interpolator"
        assert_same(model, OLSEnsembleRegressor(15, **settings).fit(X, y, w))


def test_distrusted_members_get_a_triangular_factor_from_the_cluster(seed):
    X, y, _ = data(seed)
    X[:, 1] = X[:, 0] + 1e-7 * X[:, 1]  # not dependent, and too near to be refined
    expected = ensemble(seed).fit(X, y)
    assert expected.n_fallbacks_ > 0
    assert_same(ensemble(seed).fit(*_arrays(X, y)), expected, 1e-8 * np.abs(expected.coef_).max())


def test_bad_input_is_named_and_leaves_nothing_behind(seed):
    X, y, _ = data(seed)
    lazy, target = _arrays(X, y)
    spoilt = X.copy()
    spoilt[333, 2] = np.nan
    cases = [
        ((lazy[lazy[:, 0] > 0], target), r"unknown chunk sizes.*compute_chunk_sizes\(\)"),
        ((_arrays(spoilt, y)[0], target), r"block 3 of the Dask array \(rows 333 to 443\).*in X, in 1 rows: 333"),
        ((lazy, target[:-1]), r"y has 899 rows, but X has 900"),
        ((lazy, None), "y is None"),
        ((lazy[:, 0], target), "expected 2D"),
    ]
    for given, message in cases:
        model = ensemble(seed)
        with pytest.raises(ValueError, match=message):
            model.fit(*given)
        assert vars(model).keys() == vars(ensemble(seed)).keys()


def test_merges_go_in_order_whatever_the_number():
    for count in (1, 7, 8, 9, 70):
        merged = plumbing.compute(
            plumbing.tree([[i] for i in range(count)], lambda parts: [i for part in parts for i in part])
        )[0]
        assert merged == list(range(count))


def test_on_a_cluster_nothing_of_the_length_of_the_data_comes_home(client, seed):
    """The rows are made on the workers; what the client receives is counted."""
    rng = da.random.default_rng(seed)
    X = rng.standard_normal((200_000, 20), chunks=(20_000, 20))
    y = X.sum(axis=1) + rng.standard_normal(200_000, chunks=20_000)
    sizes = []
    plain = plumbing.compute

    def counted(*values):
        found = plain(*values)
        sizes.append(sum(a.nbytes for part in found[0][0] for a in vars(part).values() if isinstance(a, np.ndarray)))
        return found

    from unittest.mock import patch

    with patch.object(plumbing, "compute", counted):
        model = ensemble(seed).fit(X, y)
    assert sizes and max(sizes) < 10_000
    assert abs(model.predict(X)[:5].compute() - (X[:5] @ model.coef_ + model.intercept_).compute()).max() < 1e-9


def _slow_rows(X, folder):
    """A Dask array of 24 chunks that take their time; every run of one leaves the worker's process id in `folder`."""

    def slowly(block):
        import tempfile

        tempfile.NamedTemporaryFile(dir=folder, prefix=f"{os.getpid()}-", delete=False).close()
        time.sleep(0.1)
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


@pytest.mark.parametrize("cls", [OLSEnsembleRegressor, OLSEnsembleRegressorCV], ids=lambda cls: cls.__name__)
def test_killing_a_worker_changes_nothing(client, cls, seed, tmp_path):
    """The worker dies while it holds the sums of some chunks and works on another, so chunks must be made again."""
    X, y, _ = data(seed, n=2400)
    y = y + 60 * np.random.default_rng(seed).standard_normal(len(y))  # so that tuning stops short of all columns
    target = da.from_array(y, chunks=100)
    undisturbed, disturbed = tmp_path / "undisturbed", tmp_path / "disturbed"
    undisturbed.mkdir(), disturbed.mkdir()
    expected = cls(30, random_state=seed).fit(_slow_rows(X, undisturbed), target)
    assert len(list(undisturbed.iterdir())) == 24
    workers = set(client.run(os.getpid).values())
    with ThreadPoolExecutor(1) as killer:
        kill = killer.submit(_kill_a_busy_worker, disturbed, 8)
        model = cls(30, random_state=seed).fit(_slow_rows(X, disturbed), target)
        fitted = time.monotonic()
        victim, killed = kill.result()
    assert victim in workers and killed < fitted
    assert len(list(disturbed.iterdir())) > 24
    assert victim not in client.run(os.getpid).values()
    assert_bit_identical(model, expected)


def assert_bit_identical(model, expected):
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    assert model.intercept_ == expected.intercept_
    if isinstance(expected, OLSEnsembleRegressorCV):
        assert model.max_features_ == expected.max_features_ < P
        assert model.best_score_ == expected.best_score_
        for name, values in expected.cv_results_.items():
            np.testing.assert_array_equal(model.cv_results_[name], values, err_msg=name)


def test_fits_that_are_tasks_of_a_grid_search(client, seed):
    X, y, _ = data(seed)
    client.wait_for_workers(2, timeout=60)  # another test may have killed one
    with joblib.parallel_config("dask"):
        scores = cross_val_score(ensemble(seed), X, y, cv=3)
    np.testing.assert_allclose(scores, cross_val_score(ensemble(seed), X, y, cv=3), rtol=1e-12)
