"""Data in row blocks: the coefficients of arrays, in constant memory, and nothing half-fitted on bad input."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.model_selection import PredefinedSplit

from olsen import OLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen._engines import sources as blocks
from olsen._engines.blocks import Accumulator
from olsen._moments import from_data
from olsen._selection.fold_data import FOLDS
from olsen._selection.fold_data import SEED as FOLD_SEED

N, P = 700, 12


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 6_000)


def data(seed, q=None):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P)) + 100 * rng.standard_normal(P)
    Y = X @ rng.standard_normal((P, q or 1)) + rng.standard_normal((N, q or 1)) + 7
    return X, Y if q else Y[:, 0], rng.integers(0, 3, N).astype(float)


def cut(size, *arrays):
    """Function that yields the blocks of arrays."""

    def read():
        for start in range(0, len(arrays[0]), size):
            yield tuple(a[start : start + size] for a in arrays)

    return read


def ensemble(seed, **settings):
    return OLSEnsembleRegressor(15, 0.5, random_state=seed, **settings)


def assert_same(got, expected, tol=1e-8):
    np.testing.assert_allclose(got.coef_, expected.coef_, rtol=0, atol=tol)
    np.testing.assert_allclose(got.intercept_, expected.intercept_, rtol=tol)
    # what is refined on rows at hand takes a second pass over blocks
    assert got.n_features_in_ == P and got.n_estimators_ == 15 and got.n_fallbacks_ >= expected.n_fallbacks_


def write_npy(folder, *arrays):
    for name, array in zip("Xyw", arrays, strict=True):
        np.save(folder / f"{name}.npy", array)
    return tuple(folder / f"{name}.npy" for name in "Xyw")


def write_parquet(folder, X, y, weight):
    """One file of many row groups, and the same rows in a folder of two files."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({f"x{j}": X[:, j] for j in range(P)} | {"target": y, "w": weight})
    pq.write_table(table, folder / "one.parquet", row_group_size=100)
    (folder / "many").mkdir()
    pq.write_table(table[:300], folder / "many" / "0.parquet")
    pq.write_table(table[300:], folder / "many" / "1.parquet")
    return folder / "one.parquet", folder / "many"


def write_zarr(folder, X):
    zarr = pytest.importorskip("zarr")
    stored = zarr.create_array(str(folder / "x.zarr"), shape=X.shape, chunks=(150, 5), dtype=X.dtype)
    stored[:] = X
    return stored


def open_dataset(path):
    return pytest.importorskip("pyarrow.dataset").dataset(path)


def on_dask(chunks):
    def given(folder, X, y, weight):
        da = pytest.importorskip("dask.array")
        return (
            da.from_array(X, chunks=chunks),
            da.from_array(y, chunks=123),
            None if weight is None else da.from_array(weight, chunks=50),
        )

    return given


# name -> function(folder, X, y, weight) that returns the arguments of fit
SOURCES = {
    "array": lambda folder, *rows: rows,
    "memory map": lambda folder, *rows: tuple(np.load(path, mmap_mode="r") for path in write_npy(folder, *rows)),
    "npy": lambda folder, *rows: write_npy(folder, *rows),
    "npy and arrays": lambda folder, *rows: (str(write_npy(folder, *rows)[0]), *rows[1:]),
    "parquet": lambda folder, *rows: (write_parquet(folder, *rows)[0], "target", "w"),
    "folder": lambda folder, *rows: (write_parquet(folder, *rows)[1], "target", "w"),
    "dataset": lambda folder, *rows: (open_dataset(write_parquet(folder, *rows)[0]), "target", "w"),
    "zarr": lambda folder, *rows: (write_zarr(folder, rows[0]), *rows[1:]),
    "zarr path": lambda folder, *rows: (str(write_zarr(folder, rows[0]).store.root), *rows[1:]),
    "function": lambda folder, *rows: (cut(97, *rows), None, None),
    "iterator": lambda folder, *rows: (cut(64, *rows)(), None, None),
    "sparse blocks": lambda folder, *rows: (((sp.csr_array(X), *other) for X, *other in cut(50, *rows)()), None, None),
    "dask, 3 chunks": on_dask((250, P)),
    "dask, 40 chunks": on_dask((71, 3)),
    "dask, uneven chunks": on_dask(((1, 399, 300), P)),
}


def fit_in_batches(model, X, y, weight):
    for batch in cut(200, X, y, weight)():
        model.partial_fit(*batch)
    return model


def keeps_rows(model):
    """Whether a model refers to its training rows."""
    try:
        model.member_coefs()
    except ValueError as error:
        assert "needs the training rows" in str(error)
        return False
    return True


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("source", [*SOURCES, "partial_fit"])
def test_every_source_gives_the_coefficients_of_the_array(source, dtype, seed, tmp_path, monkeypatch):
    """To 1e-8, from the same numbers. Coefficients of single-precision data are rounded to it, once and at the end."""
    X, y, weight = (a.astype(dtype) for a in data(seed))
    expected = ensemble(seed).fit(*(a.astype(np.float64) for a in (X, y, weight)))
    if source == "memory map":  # just above the quarter of memory from which it is read in blocks
        monkeypatch.setattr(blocks.memory, "available_bytes", lambda: 3.9 * X.nbytes)
    if source == "partial_fit":
        model = fit_in_batches(ensemble(seed), X, y, weight)
    else:
        model = ensemble(seed).fit(*SOURCES[source](tmp_path, X, y, weight))
    assert keeps_rows(model) == (source == "array"), "everything but the array is read in pieces"
    assert model.coef_.dtype == dtype
    half_a_unit = np.finfo(dtype).eps / 2 if dtype == np.float32 else 0.0
    np.testing.assert_allclose(model.coef_.astype(np.float64), expected.coef_, rtol=half_a_unit, atol=1e-8)
    np.testing.assert_allclose(np.float64(model.intercept_), expected.intercept_, rtol=half_a_unit + 1e-8)
    assert model.n_features_in_ == P and model.n_estimators_ == 15 and model.n_fallbacks_ == expected.n_fallbacks_
    if source in ("parquet", "folder", "dataset"):
        assert model.feature_names_in_.tolist() == [f"x{j}" for j in range(P)]


@pytest.mark.parametrize("settings", [{}, {"fit_intercept": False}, {"scale": 0.7}, {"sampling": "bernoulli"}], ids=str)
@pytest.mark.parametrize("q", [None, 3])
def test_settings_and_several_targets(settings, q, seed):
    X, Y, _ = data(seed, q)
    assert_same(ensemble(seed, **settings).fit(cut(53, X, Y), None), ensemble(seed, **settings).fit(X, Y), 1e-7)


def test_large_memory_maps_are_read_in_blocks_and_small_ones_are_not(seed, tmp_path, monkeypatch):
    X, y, _ = data(seed)
    np.save(tmp_path / "X.npy", X.astype(np.float32))
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    small = ensemble(seed).fit(mapped, y)
    monkeypatch.setattr(blocks.memory, "available_bytes", lambda: 1000.0)
    large = ensemble(seed).fit(mapped, y)
    assert keeps_rows(small) and not keeps_rows(large)
    assert large.coef_.dtype == np.float32
    assert_same(large, small, 1e-5)


@pytest.mark.parametrize("centre", [True, False])
def test_moments_survive_large_means_and_drift(centre, seed):
    """Columns far from zero that move from block to block: as accurate as two passes; raw sums lose all digits."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((2000, 4)) + 1e6 + np.linspace(0, 30, 2000)[:, None]
    Y = rng.standard_normal((2000, 2)) - 1e5
    weight = rng.uniform(0.1, 2, 2000)
    accumulator = Accumulator(4, 2, centre)
    for start in range(0, 2000, 20):
        accumulator.add(X[start : start + 20], Y[start : start + 20], weight[start : start + 20])
    got, expected = accumulator.moments(), from_data(X, Y, weight, centre=centre)
    for name in ("G", "C", "yy", "mean_x", "mean_y"):
        scale = np.abs(getattr(expected, name)).max()
        np.testing.assert_allclose(getattr(got, name), getattr(expected, name), rtol=0, atol=1e-9 * scale)
    assert got.n_rows == 2000 and got.weight == pytest.approx(weight.sum())


def test_distrusted_members_come_from_a_second_pass(seed):
    X, y, _ = data(seed)
    X[:, 1] = X[:, 0] * (1 + 1e-9)
    expected = ensemble(seed).fit(X, y)
    assert_same(ensemble(seed).fit(cut(97, X, y), None), expected, 1e-6)
    model = ensemble(seed)
    with pytest.raises(ValueError, match=r"not to be trusted, but the iterator cannot be read again.*function"):
        model.fit(cut(97, X, y)(), None)
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize("offset", [1e2, 1e4, 1e6])
@pytest.mark.parametrize("size", [5, 97])
def test_columns_far_from_zero_are_not_told_apart_by_rounding(size, offset, seed):
    """Two columns proportional to each other and one that is constant: the shortest solution, whatever the means."""
    rng = np.random.default_rng(seed)
    near = rng.standard_normal((300, P))
    y = near[:, 3:] @ rng.standard_normal(P - 3) + near[:, 0] + rng.standard_normal(300)
    X = near + offset * (1 + rng.uniform(size=P))
    X[:, 1], X[:, 2] = X[:, 0] * (1 + 1e-9), 7.3 * offset
    exact = near.copy()
    exact[:, 1], exact[:, 2] = exact[:, 0] * (1 + 1e-9), 0.0
    expected = ensemble(seed).fit(exact, y).coef_
    stream = ensemble(seed)
    for part in cut(size, X, y)():
        stream.partial_fit(*part)
    for model in (ensemble(seed).fit(X, y), ensemble(seed).fit(cut(size, X, y), None), stream):
        np.testing.assert_allclose(model.coef_, expected, rtol=0, atol=1e-12 * offset)  # what rounding X itself does


@pytest.mark.parametrize("solver", ["gram", "masked_cg", "orthogonal"])
def test_solvers_that_run_on_blocks(solver, seed):
    X, y, _ = data(seed)
    model = ensemble(seed, solver=solver).fit(cut(97, X, y), None)
    assert model.solver_ == solver
    assert_same(model, ensemble(seed).fit(X, y))


def test_row_subsets_are_groups_of_rows_whatever_the_blocks(seed):
    X, y, weight = data(seed)
    models = [ensemble(seed, max_samples=0.5).fit(cut(size, X, y, weight)(), None) for size in (700, 101, 33)]
    for model in models[1:]:
        np.testing.assert_allclose(model.coef_, models[0].coef_, atol=1e-8)
    group = blocks.row_groups(0, N, 20, seed)
    assert np.array_equal(blocks.row_groups(13, 50, 20, seed), group[13:63])
    plain = ensemble(seed).fit(X, y, weight)
    assert not np.allclose(models[0].coef_, plain.coef_, atol=1e-8)
    assert np.corrcoef(models[0].predict(X), plain.predict(X))[0, 1] > 0.99


def test_row_subsets_equal_members_solved_on_those_rows(seed):
    """A member's rows are whole groups: the same as a fit on these rows."""
    X, y, _ = data(seed)
    model = OLSEnsembleRegressor(1, 1.0, max_samples=0.25, random_state=seed).fit(cut(64, X, y)(), None)
    group = blocks.row_groups(0, N, 20, seed)
    from olsen import subsets

    (chosen,) = subsets.draw(20, 1, seed=seed, size=5, design="balanced", stream=subsets.ROWS)
    rows = np.isin(group, chosen)
    expected = OLSEnsembleRegressor(1, 1.0, random_state=seed).fit(X[rows], y[rows])
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-8)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("q", [None, 2])
def test_sizes_are_chosen_by_exact_cross_validation_over_row_groups(q, fit_intercept, seed):
    """The folds are known, so ordinary cross-validation over them must give the same curve."""
    X, Y, _ = data(seed, q)
    Y = Y + 20 * np.random.default_rng(seed).standard_normal(Y.shape)
    X = X if fit_intercept else X - X.mean(axis=0)  # far from zero and without intercept, all columns look alike
    settings = {"random_state": seed, "scale": 1.0, "inclusion": "uniform", "fit_intercept": fit_intercept}
    folds = blocks.row_groups(0, N, FOLDS, FOLD_SEED).astype(int)
    expected = OLSEnsembleRegressorCV(30, cv=PredefinedSplit(folds), **settings).fit(X, Y)
    model = OLSEnsembleRegressorCV(30, **settings).fit(cut(64, X, Y)(), None)
    assert model.criterion_ == "kfold" and model.max_features_ == expected.max_features_
    np.testing.assert_allclose(model.cv_results_["mse"], expected.cv_results_["mse"], rtol=1e-8)
    np.testing.assert_allclose(model.risk_curve(), expected.risk_curve(), rtol=1e-8)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-8)


def test_tuning_from_blocks_with_dependent_columns_and_gcv(seed):
    X, y, _ = data(seed)
    settings = {"random_state": seed, "scale": 1.0, "inclusion": "uniform"}
    plain = OLSEnsembleRegressorCV(30, cv="gcv", **settings).fit(cut(64, X, y)(), None)
    in_memory = OLSEnsembleRegressorCV(30, cv="gcv", **settings).fit(X, y)
    assert plain.criterion_ == "gcv" and plain.score(X, y) == pytest.approx(in_memory.score(X, y), abs=0.05)
    X[:, 3] = X[:, 2]
    model = OLSEnsembleRegressorCV(30, **settings).fit(cut(64, X, y), None)
    expected = OLSEnsembleRegressorCV(30, cv=5, **settings).fit(X, y)
    assert np.isfinite(model.cv_results_["mse"]).all()
    assert model.score(X, y) == pytest.approx(expected.score(X, y), abs=0.05)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"cv": "oob"}, "None means 3-fold there"),
        ({"max_samples": 0.5}, "needs every row again"),
    ],
    ids=str,
)
def test_tuning_that_needs_every_row_is_refused(setting, message, seed):
    X, y, _ = data(seed)
    model = OLSEnsembleRegressorCV(30, **({"inclusion": "uniform"} | setting))
    with pytest.raises(ValueError, match=message):
        model.fit(cut(64, X, y)(), None)
    assert not hasattr(model, "criterion_")


def spoil(y, X, seed):
    X = X.copy()
    X[[205, 211], 3] = np.nan
    return X, y


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (lambda X, y: iter([(X[:50], y[:50]), (X[50:90, :-1], y[50:90])]), r"block 1 .* has 11 columns and 1 targets"),
        (lambda X, y: iter([(X[:50], y[:49])]), r"block 0 .* has 50 rows of X, 49 of y"),
        (lambda X, y: iter([]), r"the iterator has 0 rows"),
        (lambda X, y: iter([(X[:1], y[:1])]), r"the iterator has 1 rows"),
        (lambda X, y: iter([X[:50]]), r"block 0 is not a pair"),
        (lambda X, y: iter([(X[:50], y[:50], -np.ones(50))]), r"block 0 .* negative weights"),
        (lambda X, y: iter([(X[:50].astype(str), y[:50])]), r"block 0 .* 2D numbers needed"),
        (
            lambda X, y: cut(100, *spoil(y, X, 0))(),
            r"block 2 of the iterator \(rows 200 to 299\).*X, in 2 rows: 205, 211",
        ),
        (lambda X, y: cut(100, X, np.where(np.arange(N) == 301, np.inf, y))(), r"block 3 .* in y, in 1 rows: 301"),
        (lambda X, y: cut(100, X * 1e200, y)(), r"block 0 .* overflow"),
    ],
)
def test_bad_blocks_are_named_and_nothing_is_left_behind(source, message, seed):
    X, y, _ = data(seed)
    model = ensemble(seed)
    with pytest.raises(ValueError, match=message), np.errstate(all="ignore"):
        model.fit(source(X, y), None)
    assert vars(model).keys() == vars(ensemble(seed)).keys()
    model.fit(X, y)
    before = model.coef_
    with pytest.raises(ValueError, match=message), np.errstate(all="ignore"):
        model.fit(source(X, y), None)
    assert model.coef_ is before


def test_bad_files_are_named(seed, tmp_path):
    X, y, weight = data(seed)
    write_npy(tmp_path, X, y, weight)
    write_parquet(tmp_path, X, y, weight)
    cases = {
        tmp_path / "nothing.npy": (y, FileNotFoundError, "no such file"),
        tmp_path / "X.npy": ("target", ValueError, "has no named columns"),
        tmp_path / "one.parquet": ("price", ValueError, r"no column 'price'; it has 'x0'"),
        tmp_path / "many": (None, ValueError, "name the column"),
        tmp_path / "y.npy": (y, ValueError, r"shape \(700,\); expected 2D"),
    }
    for path, (target, error, message) in cases.items():
        with pytest.raises(error, match=message):
            ensemble(seed).fit(path, target)
    with pytest.raises(ValueError, match=r"y has 699 rows, but the file .* has 700"):
        ensemble(seed).fit(tmp_path / "X.npy", y[:-1])
    with pytest.raises(ValueError, match="y and sample_weight come with them"):
        ensemble(seed).fit(cut(10, X, y)(), y)
    (tmp_path / "many" / "2.parquet").write_bytes((tmp_path / "one.parquet").read_bytes()[:1000])
    with pytest.raises(ValueError, match="cut short"):
        ensemble(seed).fit(tmp_path / "many", "target")
    for name in ("X.npy", "one.parquet"):
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])
        model = ensemble(seed)
        with pytest.raises(ValueError, match="cut short"):
            model.fit(tmp_path / name, y if name == "X.npy" else "target")
        assert not hasattr(model, "coef_")


def test_text_columns_of_parquet_are_named(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"a": [1.0, 2.0], "colour": ["red", "blue"], "y": [1.0, 2.0]}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"1 of 2 columns .*'colour'"):
        OLSEnsembleRegressor(3).fit(tmp_path / "t.parquet", "y")


@pytest.mark.parametrize("where", ["X", "y"])
@pytest.mark.parametrize("number", [0, 31, 32, 495, 500, 511, 512])
def test_a_bad_number_is_found_in_every_block(number, where):
    """Also in those that complete a run of blocks summed about one shift."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((10 * 520, 4)), rng.standard_normal(10 * 520)
    (X if where == "X" else y)[10 * number + 3] = np.nan
    model = OLSEnsembleRegressor(3, random_state=0)
    with pytest.raises(ValueError, match=rf"block {number} of the .* in {where}, in 1 rows: {10 * number + 3}"):
        model.fit(cut(10, X, y), None)
    assert not hasattr(model, "coef_")


def test_a_weight_that_is_no_number_is_named_and_not_dropped(seed):
    X, y, weight = data(seed)
    weight[207] = np.nan
    with pytest.raises(ValueError, match=r"block 2 .* in sample_weight, in 1 rows: 207"):
        ensemble(seed).fit(cut(100, X, y, weight), None)


@pytest.mark.parametrize("q", [None, 2])
def test_blocks_without_rows_add_nothing(q, seed):
    X, y, _ = data(seed, q)

    def read():
        yield X[:0], y[:0]
        yield X[:300], y[:300]
        yield X[300:300], y[300:300]
        yield X[300:], y[300:]

    assert_same(ensemble(seed).fit(read, None), ensemble(seed).fit(X, y))


def test_nulls_in_parquet_are_named_by_row(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    values = [1.0, 2.0, None, 4.0]
    pq.write_table(
        pa.table({"a": values, "b": [4.0, 1.0, 3.0, 0.0], "y": [1.0, 2.0, 0.0, 1.0]}), tmp_path / "t.parquet"
    )
    with pytest.raises(ValueError, match="in X, in 1 rows: 2"):
        OLSEnsembleRegressor(3).fit(tmp_path / "t.parquet", "y")


def test_progress_tells_rows(seed, capsys):
    X, y, _ = data(seed)
    ensemble(seed, verbose=1).fit(cut(350, X, y)(), None)
    out = capsys.readouterr().out
    assert "rows: 350 of an unknown number" in out and "rows: 700" in out


LIMITED = """
import resource, sys
import numpy as np
from olsen import OLSEnsembleRegressor, OLSEnsembleRegressorCV
X = np.random.default_rng(0).standard_normal((500, 20))
OLSEnsembleRegressor(2, n_jobs=2, solver="gram").fit(X, X[:, 0])
used = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (used + 160_000_000,) * 2)
try:
    np.ones((100_000, 500), dtype=np.float32) + 1
except MemoryError:
    model = OLSEnsembleRegressor(20, 0.5, random_state=0).fit(sys.argv[1], sys.argv[2])
    print("fitted", model.coef_.shape)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_DATA")
def test_a_file_larger_than_the_memory_limit(tmp_path):
    """200 MB in single precision, with 160 MB to work in; loading the file alone would fail."""
    rng = np.random.default_rng(0)
    X = np.lib.format.open_memmap(tmp_path / "X.npy", mode="w+", dtype=np.float32, shape=(100_000, 500))
    for start in range(0, 100_000, 10_000):
        X[start : start + 10_000] = rng.standard_normal((10_000, 500), dtype=np.float32)
    np.save(tmp_path / "y.npy", np.asarray(X[:, :5].sum(axis=1)))
    del X
    command = [sys.executable, "-c", textwrap.dedent(LIMITED), str(tmp_path / "X.npy"), str(tmp_path / "y.npy")]
    out = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})
    assert out.stdout.strip() == "fitted (500,)", out.stderr[-2000:]
