"""Dask arrays and data frames: the coefficients of arrays, whatever the chunks and the workers."""

import os
import signal
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, product

import cloudpickle
import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from loops import assert_refused, case
from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen._data import dask_rows as plumbing
from olsen._execution import memory
from random_problems import linear_data

da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")
distributed = pytest.importorskip("distributed")
N = 1200
P = 14
NAMES = list("abcdefghijklmn")
ENSEMBLES = (OLSEnsembleRegressor, OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor)


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
        distributed.Client(local) as cluster_client,
    ):
        yield cluster_client


def data(seed, n=N, p=P, q=None):
    return linear_data(seed, n, p, q)


def ensemble(seed, **settings):
    return OLSEnsembleRegressor(15, 0.5, random_state=seed, **settings)


def assert_same(model, expected, tol=1e-8):
    assert_allclose(model.coef_, expected.coef_, rtol=0, atol=tol)
    assert_allclose(model.intercept_, expected.intercept_, rtol=tol)
    assert model.n_fallbacks_ == expected.n_fallbacks_


def lazy(X, y, chunks=111):
    return da.from_array(X, chunks=(chunks, X.shape[1])), da.from_array(y, chunks=chunks)


def lazy_frame(X):
    return dd.from_pandas(pd.DataFrame(X, columns=NAMES[: X.shape[1]]), npartitions=3)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_chunks_and_weights_do_not_matter(dtype, seed):
    X, y, weight = data(seed)
    X = X.astype(dtype)
    for chunks, weighted in product(((300, P), (77, 5), ((1, 499, 700), P)), (False, True)):
        with case(chunks, weighted):
            chunked_X = da.from_array(X, chunks=chunks)
            chunked_weight = da.from_array(weight, chunks=50) if weighted else None
            model = ensemble(seed).fit(chunked_X, da.from_array(y, chunks=123), chunked_weight)
            expected = ensemble(seed).fit(X.astype(float), y, weight if weighted else None)
            rounding = 2 * np.finfo(dtype).eps * np.abs(expected.coef_).max()
            assert_allclose(model.coef_, expected.coef_, rtol=0, atol=1e-8 + rounding)
            prediction = model.predict(chunked_X)
            assert isinstance(prediction, da.Array)
            assert prediction.chunks[0] == chunked_X.chunks[0]
            assert model.coef_.dtype == prediction.dtype == dtype
            assert_allclose(prediction.compute(), model.predict(X), rtol=1e-5)


@pytest.mark.parametrize(
    "settings", [{"fit_intercept": False}, {"scale": 0.7}, {"solver": "masked_cg"}], ids=str
)
def test_settings_are_those_of_arrays(settings, seed):
    X, Y, _ = data(seed, q=3)
    rows = da.from_array(X, chunks=(200, P)), da.from_array(Y, chunks=(90, 2))
    model = ensemble(seed, **settings).fit(*rows)
    assert_same(model, ensemble(seed, **settings).fit(X, Y), 1e-7)
    assert_allclose(model.predict(rows[0]).compute(), model.predict(X), atol=1e-10)


@pytest.mark.parametrize("make", ENSEMBLES)
def test_data_frames_with_targets_and_weights_of_every_kind(make, seed):
    X, y, weight = data(seed)
    frame = lazy_frame(X)
    chunked_X = lazy(X, y)[0]
    table = dd.from_pandas(pd.DataFrame(X, columns=NAMES).assign(t=y, w=weight), npartitions=5)
    series = dd.from_pandas(pd.Series(y, name="y"), npartitions=7)
    model = make(n_estimators=10, random_state=0)
    expected = clone(model).fit(chunked_X, y, weight)
    inputs = {
        "arrays": (frame, y, weight),
        "pandas": (frame, pd.Series(y), pd.Series(weight)),
        "lists": (frame, list(y), list(weight)),
        "names": (table, "t", "w"),
        "series": (frame, series, weight),
    }
    for name, rows in inputs.items():
        with case(name):
            assert_same(model.fit(*rows), expected)
            assert model.feature_names_in_.tolist() == NAMES
    doubled = clone(model).fit(chunked_X, y, np.full(N, 2.0))
    assert_same(model.fit(frame, y, 2.0), doubled)
    assert model.fit(table, ["t", "w"]).coef_.shape == (2, P)


def test_columns_of_objects_and_nullable_integers_are_numbers(seed):
    X, y, _ = data(seed)
    integers = np.rint(3 * X)
    nullable = dd.from_pandas(pd.DataFrame(integers).astype("Int64"), npartitions=3)
    for rows in (lazy(integers.astype(object), y)[0], nullable):
        assert_same(ensemble(seed).fit(rows, y), ensemble(seed).fit(integers, y), 1e-7)


@pytest.mark.parametrize(
    "model",
    [
        OLSEnsembleRegressorCV(20),
        OLSEnsembleRegressorCV(20, sampling="determinantal"),
        AdaptiveOLSEnsembleRegressor(n_estimators=20),
    ],
    ids=str,
)
def test_tuning_is_that_of_blocks(model, seed):
    X, y, _ = data(seed)
    model.set_params(random_state=seed)
    expected = clone(model).fit(iter([(X, y)]), None)
    model.fit(*lazy(X, y))
    assert model.criterion_ == "kfold"
    assert model.scale_ == pytest.approx(expected.scale_)
    if isinstance(model, OLSEnsembleRegressorCV):
        assert model.max_features_ == pytest.approx(expected.max_features_, rel=1e-9)
    else:
        assert model.scheme_weights_ == pytest.approx(expected.scheme_weights_)
    scores = expected.cv_results_["mean_test_score"]
    assert_allclose(model.cv_results_["mean_test_score"], scores, rtol=1e-9)
    assert_same(model, expected)


def test_row_subsets_are_refused(seed):
    X, y, _ = data(seed)
    model = ensemble(seed, max_samples=0.5)
    assert_refused(model, lazy(X, y), "max_samples=0.5", "array in memory")


def test_a_gram_matrix_that_does_not_fit_is_refused(seed, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 1e6)
    rows = da.zeros((5000, 3000), chunks=(100, 3000)), da.zeros(5000, chunks=100)
    assert_refused(ensemble(seed), rows, "3000 columns", error=MemoryError)


def test_no_more_rows_than_columns_are_loaded(seed):
    X, y, weight = data(seed, n=25, p=60)
    for max_samples, sample_weight in product((1.0, 9), (None, weight, 2.0)):
        model = OLSEnsembleRegressor(15, 40, max_samples, random_state=seed)
        expected = clone(model).fit(X, y, sample_weight)
        model.fit(*lazy(X, y, 9), sample_weight)
        assert model.solver_ == "interpolator"
        assert_same(model, expected)
    frame = pd.DataFrame(X[:10, :P], columns=NAMES)
    loaded = ensemble(seed).fit(dd.from_pandas(frame, npartitions=2), y[:10])
    assert loaded.feature_names_in_.tolist() == NAMES
    assert loaded.member_coefs().shape == (15, P)


def test_distrusted_members_get_a_triangular_factor_from_the_cluster(seed):
    X, y, _ = data(seed)
    X[:, 1] = X[:, 0] + 1e-7 * X[:, 1]  # not dependent, and too near to be refined
    expected = ensemble(seed).fit(X, y)
    assert expected.n_fallbacks_ > 0
    assert_same(ensemble(seed).fit(*lazy(X, y)), expected, 1e-8 * np.abs(expected.coef_).max())


def replaced(array, row, value):
    array = array.copy()
    array[row] = value
    return array


@pytest.mark.parametrize("make", ENSEMBLES)
def test_bad_data_are_named(make, seed):
    X, y, weight = data(seed)
    rows, target = lazy(X, y)
    with_nan = replaced(X, (333, 2), np.nan)
    text = y.astype(str)
    ones = np.ones(N)
    frame = pd.DataFrame(X, columns=NAMES)

    def frame_with(**columns):
        return dd.from_pandas(frame.assign(**columns), npartitions=3)

    table = frame_with(t=y)
    cases = [
        ((rows[rows[:, 0] > 0], target), "nan", "compute_chunk_sizes()"),
        ((lazy(with_nan, y)[0], target), "block 3", "rows 333 to 443", "in X, in 1 rows: 333"),
        ((lazy(replaced(X, (333, 2), 1e200), y)[0], target), "block 3", "column 2 of X"),
        ((lazy_frame(with_nan), y), "block 0", "in X, in 1 rows: 333"),
        ((rows, target[:-1]), "1199", "1200"),
        ((rows, None), "y is None"),
        ((rows[:, 0], target), "(1200,)"),
        ((rows, target, weight[:, None]), "sample_weight has 2 dimensions"),
        ((rows, target, da.ones((N, 1), chunks=20)), "sample_weight has 2 dimensions"),
        ((rows, y, replaced(ones, 3, np.nan)), "block 0", "sample_weight, in 1 rows: 3"),
        ((rows, y, replaced(ones, 300, -5.0)), "block 2", "negative", "in 1 rows: 300"),
        ((table, "price"), "'price'", "'a'"),
        ((table, "t", "v"), "'v'"),
        ((rows, "t"), "'t'"),
        ((table[["t"]], "t"), "for X", "'t'"),
        ((lazy(X + 1j, y)[0], y), "X of block", "complex128"),
        ((rows, y + 1j), "y of block", "complex128"),
        ((rows, text), "y of block", "<U"),
        ((rows, text.astype(object) + "x"), "y of block", "could not convert"),
        ((frame_with(t="u", s=1, z="v"), y), "2 of 17 columns", "'t', 'z'"),
        ((frame_with(z=pd.Categorical(range(N))), y), "1 of 15 columns", "'z'"),
        ((frame_with(a=1j), y), "'a'"),
    ]
    for arguments, *facts in cases:
        with case(*facts):
            assert_refused(make(n_estimators=5), arguments, *facts)


def test_two_rows_with_weight_are_needed_and_blocks_without_weight_do_not_count(seed):
    X, y, _ = data(seed)
    rows = lazy(X, y)[0]
    for n_positive, X_of_kind in product((0, 1), (rows, lazy_frame(X))):
        weight = (np.arange(N) < n_positive).astype(float)
        facts = f"positive for {n_positive} of 1200 rows", "at least 2"
        assert_refused(ensemble(seed), (X_of_kind, y, weight), *facts)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = ensemble(seed).fit(rows, y, (np.arange(N) >= 300).astype(float))
    assert_same(model, ensemble(seed).fit(X[300:], y[300:]), 1e-7)


def test_predictions_check_columns_in_the_words_of_scikit_learn(seed):
    X, y, _ = data(seed)
    frame = pd.DataFrame(X, columns=NAMES)
    model = ensemble(seed).fit(frame, y)
    prediction = model.predict(dd.from_pandas(frame, npartitions=2)).compute()
    assert_allclose(prediction, model.predict(frame))
    for columns in (NAMES[::-1], [*NAMES[:-1], "z"], NAMES[:3], [*NAMES, "z"]):
        wrong = pd.DataFrame(np.ones((9, len(columns))), columns=columns)
        messages = []
        for wrong_X in (wrong, dd.from_pandas(wrong, npartitions=2)):
            with pytest.raises(ValueError) as raised:
                model.predict(wrong_X)
            messages.append(str(raised.value))
        assert messages[0] == messages[1]
    model = ensemble(seed).fit(*lazy(X, y))
    three_features = r"(?s)3 features.*14 features"
    for wrong_X, message in (
        (lazy(X[:, :3], y)[0], three_features),
        (lazy_frame(X[:, :3]), three_features),
        (lazy(X, y)[1], "1 dimensions"),
        (lazy_frame(X)["a"], "1 dimensions"),
    ):
        with pytest.raises(ValueError, match=message), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.predict(wrong_X)


def test_merges_go_in_order_whatever_the_number():
    for count in (1, 7, 8, 9, 70):
        merged = plumbing.compute(
            plumbing.tree([[i] for i in range(count)], lambda parts: list(chain(*parts)))
        )[0]
        assert merged == list(range(count))


def test_the_client_of_a_cluster_receives_little(client, seed, monkeypatch):
    """The rows are made on the workers; what the client receives is counted."""
    rng = da.random.default_rng(seed)
    X = rng.standard_normal((200_000, 20), chunks=(20_000, 20))
    y = X.sum(axis=1) + rng.standard_normal(200_000, chunks=20_000)
    sizes = []
    plain = plumbing.compute

    def counted(*values):
        computed = plain(*values)
        sizes.append(len(cloudpickle.dumps(computed)))
        return computed

    monkeypatch.setattr(plumbing, "compute", counted)
    model = ensemble(seed).fit(X, y)
    assert 0 < max(sizes) < 10_000
    expected = X[:5].compute() @ model.coef_ + model.intercept_
    assert_allclose(model.predict(X)[:5].compute(), expected, rtol=0, atol=1e-9)


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


def _kill_a_busy_worker(folder, n_runs):
    """Wait for `n_runs` runs of chunks, then kill the process that made the last one."""
    deadline = time.monotonic() + 60
    while len(runs := sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)) < n_runs:
        assert time.monotonic() < deadline, "no worker ever ran a chunk"
        time.sleep(0.005)
    victim = int(runs[-1].name.split("-")[0])
    os.kill(victim, signal.SIGKILL)
    return victim, time.monotonic()


def test_killing_a_worker_changes_nothing(client, seed, tmp_path):
    """The worker dies while it holds the sums of some chunks and works on another, so chunks must
    be made again.

    The fit is a tuned one, which reads the sums that a plain one reads, by folds. Noise makes it
    stop short of all columns.
    """
    X, y, _ = data(seed, n=2400)
    noisy = y + 60 * np.random.default_rng(seed).standard_normal(len(y))
    target = da.from_array(noisy, chunks=100)
    model = AdaptiveOLSEnsembleRegressor(n_estimators=30, random_state=seed)
    undisturbed = tmp_path / "undisturbed"
    disturbed = tmp_path / "disturbed"
    undisturbed.mkdir()
    disturbed.mkdir()
    expected = clone(model).fit(_slow_rows(X, undisturbed), target)
    assert len(list(undisturbed.iterdir())) == 24
    workers = set(client.run(os.getpid).values())
    with ThreadPoolExecutor(1) as killer:
        kill = killer.submit(_kill_a_busy_worker, disturbed, 8)
        model.fit(_slow_rows(X, disturbed), target)
        fitted = time.monotonic()
        victim, killed = kill.result()
    assert victim in workers
    assert killed < fitted
    assert len(list(disturbed.iterdir())) > 24
    assert victim not in client.run(os.getpid).values()
    assert_array_equal(model.coef_, expected.coef_)
    assert model.intercept_ == expected.intercept_
    assert expected.inclusion_.sum() < P
    assert model.scheme_weights_ == expected.scheme_weights_
    assert model.best_score_ == expected.best_score_
    for name, values in expected.cv_results_.items():
        assert_array_equal(model.cv_results_[name], values, err_msg=name)


def test_fits_can_be_tasks_of_a_grid_search(client, seed):
    X, y, _ = data(seed)
    client.wait_for_workers(2, timeout=60)  # another test may have killed one
    with joblib.parallel_config("dask"):
        scores = cross_val_score(ensemble(seed), X, y, cv=3)
    assert_allclose(scores, cross_val_score(ensemble(seed), X, y, cv=3), rtol=1e-12)


def test_row_groups_that_dask_reads_together(tmp_path):
    """Dask joins partitions of a column, but not those of many columns."""
    pytest.importorskip("pyarrow")
    X, y, _ = data(0)
    frame = pd.DataFrame(X, columns=NAMES).assign(y=y)
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=100)
    lazy = dd.read_parquet(tmp_path / "rows.parquet", split_row_groups=True)
    assert lazy.npartitions == 12
    expected = AdaptiveOLSEnsembleRegressor().fit(X, y).coef_
    for rows, target in ((lazy, "y"), (lazy[NAMES], lazy["y"])):
        coef = AdaptiveOLSEnsembleRegressor().fit(rows, target).coef_
        assert_allclose(coef, expected, rtol=0, atol=1e-9)
