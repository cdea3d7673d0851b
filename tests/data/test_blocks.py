"""Data in row blocks: the coefficients of arrays, in constant memory, and no half-fitted models."""

import os
import subprocess
import sys
import warnings
from itertools import pairwise, product

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import PredefinedSplit

from loops import assert_refused, case
from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen._data import sources as blocks
from olsen._data.accumulator import Accumulator
from olsen._data.moments import from_data
from olsen._data.splits import FOLD_SEED, FOLDS
from olsen.subsets import row_groups
from random_problems import linear_data

N = 1200
P = 12
COLUMN_NAMES = [f"x{j}" for j in range(P)]
ENSEMBLES = (OLSEnsembleRegressor, OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks.files, "BLOCK_BYTES", 6_000)


def data(seed, q=None):
    return linear_data(seed, N, P, q, far=100.0)


def cut(size, *arrays):
    """Function that yields the blocks of arrays."""
    return lambda: (tuple(a[i : i + size] for a in arrays) for i in range(0, len(arrays[0]), size))


def ensemble(seed, max_features=0.5, **settings):
    return OLSEnsembleRegressor(15, max_features, random_state=seed, **settings)


def assert_same(model, expected, tol=1e-8):
    assert_allclose(model.coef_, expected.coef_, rtol=0, atol=tol)
    assert_allclose(model.intercept_, expected.intercept_, rtol=tol)
    assert (model.n_features_in_, model.n_estimators_) == (P, 15)
    # members that are refined on rows in memory take a second pass over blocks
    assert model.n_fallbacks_ >= expected.n_fallbacks_


def write_npy(folder, *arrays):
    paths = [folder / f"{name}.npy" for name in "Xyw"]
    for path, array in zip(paths, arrays, strict=True):
        np.save(path, array)
    return paths


def write_parquet(folder, X, y, weight):
    """One file of many row groups, and the same rows in a folder of two files."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    columns = dict(zip(COLUMN_NAMES, X.T, strict=True))
    table = pa.table({**columns, "target": y, "w": weight})
    pq.write_table(table, folder / "one.parquet", row_group_size=100)
    (folder / "many").mkdir()
    pq.write_table(table[:300], folder / "many" / "0.parquet")
    pq.write_table(table[300:], folder / "many" / "1.parquet")
    return folder / "one.parquet", folder / "many"


def open_dataset(path):
    return pytest.importorskip("pyarrow.dataset").dataset(path)


def memory_maps(folder, *arrays):
    return [np.load(path, mmap_mode="r") for path in write_npy(folder, *arrays)]


def sparse_blocks(X, y, weight):
    return ((sp.csr_array(block), *targets) for block, *targets in cut(50, X, y, weight)())


# name -> function(folder, X, y, weight) that returns the arguments of fit
SOURCES = {
    "array": lambda folder, *rows: rows,
    "memory map": memory_maps,
    "slice of a map": (
        lambda folder, *rows: [a[3:] for a in memory_maps(folder, *(np.r_[a[:3], a] for a in rows))]
    ),
    "npy": write_npy,
    "npy by columns": lambda folder, X, *yw: write_npy(folder, np.asfortranarray(X), *yw),
    "npy and arrays": lambda folder, *rows: (str(write_npy(folder, *rows)[0]), *rows[1:]),
    "parquet": lambda folder, *rows: (write_parquet(folder, *rows)[0], "target", "w"),
    "folder": lambda folder, *rows: (write_parquet(folder, *rows)[1], "target", "w"),
    "dataset": lambda folder, *rows: (open_dataset(write_parquet(folder, *rows)[0]), "target", "w"),
    "function": lambda folder, *rows: (cut(97, *rows), None, None),
    "iterator": lambda folder, *rows: (cut(64, *rows)(), None, None),
    "sparse blocks": lambda folder, *rows: (sparse_blocks(*rows), None, None),
}


def keeps_rows(model):
    """Whether a model refers to its training rows."""
    try:
        model.member_coefs()
    except ValueError as error:
        assert "needs the training rows" in str(error)
        return False
    return True


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("source", [*SOURCES, "partial_fit"])
def test_every_source_gives_the_coefficients_of_the_array(
    source, dtype, seed, tmp_path, monkeypatch
):
    """Coefficients of single-precision data are rounded to single precision once, at the end."""
    X, y, weight = (a.astype(dtype) for a in data(seed))
    expected = ensemble(seed).fit(*(a.astype(np.float64) for a in (X, y, weight)))
    if "map" in source:  # just above the quarter of memory from which it is read in blocks
        monkeypatch.setattr(blocks.memory, "available_bytes", lambda: 3.9 * X.nbytes)
    model = ensemble(seed)
    if source == "partial_fit":
        for batch in cut(200, X, y, weight)():
            model.partial_fit(*batch)
    else:
        model.fit(*SOURCES[source](tmp_path, X, y, weight))
    assert keeps_rows(model) == (source == "array"), "all but the array is read in pieces"
    assert model.coef_.dtype == dtype
    half_a_unit = np.finfo(dtype).eps / 2 if dtype == np.float32 else 0.0
    assert_allclose(model.coef_.astype(float), expected.coef_, rtol=half_a_unit, atol=1e-8)
    assert_allclose(float(model.intercept_), expected.intercept_, rtol=half_a_unit + 1e-8)
    assert (model.n_features_in_, model.n_estimators_) == (P, 15)
    assert model.n_fallbacks_ == expected.n_fallbacks_
    if source in ("parquet", "folder", "dataset"):
        assert model.feature_names_in_.tolist() == COLUMN_NAMES


@pytest.mark.parametrize("q", [None, 3])
@pytest.mark.parametrize(
    "settings",
    [
        {"fit_intercept": False},
        {"scale": 0.7},
        {"sampling": "bernoulli"},
        {"solver": "gram"},
        {"solver": "masked_cg"},
        {"solver": "orthogonal"},
    ],
    ids=str,
)
def test_settings_and_solvers_are_those_of_arrays(settings, q, seed):
    X, Y, _ = data(seed, q)
    model = ensemble(seed, **settings).fit(cut(53, X, Y), None)
    assert model.solver_ == settings.get("solver", model.solver_)
    assert_same(model, ensemble(seed, **settings | {"solver": "auto"}).fit(X, Y), 1e-7)


def test_threads_change_nothing_and_small_memory_maps_are_loaded(seed, tmp_path):
    X, y, weight = data(seed)
    np.save(tmp_path / "X.npy", X)
    assert keeps_rows(ensemble(seed).fit(np.load(tmp_path / "X.npy", mmap_mode="r"), y))
    coefs = [ensemble(seed, n_jobs=n).fit(cut(20, X, y, weight), None).coef_ for n in (1, 3)]
    assert_array_equal(*coefs)


@pytest.mark.parametrize("make", ENSEMBLES)
def test_one_weight_for_all_rows(make, seed, tmp_path):
    X, y, _ = data(seed)
    pq = pytest.importorskip("pyarrow.parquet")
    parquet = write_parquet(tmp_path, X, y, y)[0]
    pq.write_table(pq.read_table(parquet).drop_columns("w"), parquet)
    sources = {
        "npy": (write_npy(tmp_path, X, y, y)[0], y, 2.0),
        "parquet": (parquet, "target", 2),
        "blocks": ((lambda: ((*block, 2.0) for block in cut(200, X, y)())), None),
    }
    model = make(n_estimators=10, random_state=0)
    expected = clone(model).fit(cut(200, X, y, np.full(N, 2.0)), None)
    for name, arguments in sources.items():
        with case(name):
            assert_allclose(model.fit(*arguments).coef_, expected.coef_, rtol=0, atol=1e-8)


@pytest.mark.parametrize("make", ENSEMBLES)
def test_blocks_that_are_frames_have_names(make, seed):
    pd = pytest.importorskip("pandas")
    X, y, _ = data(seed)
    model = make(n_estimators=10, random_state=0)
    for rows in (X, pd.DataFrame(X)):
        model.fit(cut(300, rows, pd.Series(y)), None)
        assert not hasattr(model, "feature_names_in_")
    model.fit(cut(300, pd.DataFrame(X, columns=COLUMN_NAMES), pd.Series(y)), None)
    assert model.feature_names_in_.tolist() == COLUMN_NAMES


def tables():
    """Functions of rows and the order of the columns a, b and c that make a table."""
    pd, pl, pa = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))

    def by_name(rows):
        return dict(zip("abc", rows.T, strict=True))

    return {
        "pandas": lambda rows, names: pd.DataFrame(by_name(rows))[names],
        "polars": lambda rows, names: pl.DataFrame(by_name(rows))[names],
        "Table": lambda rows, names: pa.table(by_name(rows)).select(names),
        "RecordBatch": lambda rows, names: pa.RecordBatch.from_pydict(by_name(rows)).select(names),
    }


def test_blocks_of_tables_are_not_mixed_with_another_order_of_columns(seed):
    X, y, _ = data(seed)
    X = X[:, :3]
    names = list("abc")
    expected = ensemble(seed).fit(cut(200, X, y), None)

    def refuse(first_block, second_block, *facts):
        two_blocks = iter([(first_block, y[:99]), (second_block, y[99:])])
        assert_refused(ensemble(seed), (two_blocks, None), "block 1", *facts)

    for (first, make_first), (second, make_second) in product(tables().items(), repeat=2):
        with case(first, second):
            head = make_first(X[:99], names)
            model = ensemble(seed)
            model.fit(iter([(head, y[:99]), (make_second(X[99:], names), y[99:])]), None)
            assert model.feature_names_in_.tolist() == names
            assert_allclose(model.coef_, expected.coef_, rtol=1e-10)
            refuse(head, make_second(X[99:], names[::-1]), "another order", "'c', 'a'")
    for name, make in tables().items():
        with case(name):
            refuse(make(X[:99], names), X[99:], "no names of columns", "'a'")
            refuse(X[:99], make(X[99:], names), "'a'", "first block has no names")
    pandas = tables()["pandas"](X, names)
    refuse(pandas[:99], pandas.set_axis(list("abz"), axis=1)[99:], "'c', 'z'")
    targets = pandas[["a", "b"]]
    swapped = [(X[:99], targets[:99]), (X[99:], targets[["b", "a"]][99:])]
    assert_refused(ensemble(seed), (iter(swapped), None), "block 1", "other targets", "'b', 'a'")


@pytest.mark.parametrize("make", ENSEMBLES)
def test_record_batches_have_names_in_memory_too(make, seed):
    X, y, _ = data(seed)
    batch = tables()["RecordBatch"](X[:, :3], list("abc"))
    model = make(n_estimators=10, random_state=0).fit(batch, y)
    assert model.feature_names_in_.tolist() == list("abc")
    assert_allclose(model.predict(batch), model.predict(batch.to_pandas()), rtol=1e-12)
    with pytest.raises(ValueError, match="same order"):
        model.predict(batch.select(["c", "b", "a"]))


@pytest.mark.parametrize("centre", [True, False])
def test_moments_survive_large_means_and_drift(centre, seed):
    """Columns far from zero that move from block to block: as accurate as two passes, where raw
    sums lose all digits.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((2000, 4)) + 1e6 + np.linspace(0, 30, 2000)[:, None]
    Y = rng.standard_normal((2000, 2)) - 1e5
    weight = rng.uniform(0.1, 2, 2000)
    accumulator = Accumulator(4, 2, centre)
    for block in cut(20, X, Y, weight)():
        assert accumulator.add(*block)
    moments = accumulator.moments()
    expected = from_data(X, Y, weight, centre=centre)
    for name in ("G", "C", "yy", "mean_x", "mean_y"):
        desired = getattr(expected, name)
        tolerance = 1e-9 * np.abs(desired).max()
        assert_allclose(getattr(moments, name), desired, rtol=0, atol=tolerance)
    assert moments.n_rows == 2000
    assert moments.weight == pytest.approx(weight.sum())


def test_distrusted_members_come_from_a_second_pass(seed):
    X, y, _ = data(seed)
    X[:, 1] = X[:, 0] * (1 + 1e-9)
    assert_same(ensemble(seed).fit(cut(97, X, y), None), ensemble(seed).fit(X, y), 1e-6)
    assert_refused(ensemble(seed), (cut(97, X, y)(), None), "cannot be read again", "function")


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_other_rows_at_the_second_reading_are_refused(fit_intercept, seed):
    X, y, _ = data(seed)
    dependent = np.c_[X[:, :-1], X[:, 0]]
    second_readings = {
        "1150": (dependent[:1150], y[:1150]),
        "others": (dependent + (dependent[7, 2] == dependent) * 0.1, y),
        "11": (dependent[:, :-1], y),
    }
    model = ensemble(seed, 1.0, fit_intercept=fit_intercept)
    for fact, second_reading in second_readings.items():
        readings = iter([(dependent, y), second_reading])
        source = lambda readings=readings: iter([next(readings)])  # noqa: E731
        assert_refused(model, (source, None), "second", fact)
    used_up = cut(50, dependent, y)()
    facts = f"{N} rows", "and 0 at", "fresh iterator"
    assert_refused(model, (lambda: used_up, None), *facts)


def test_the_same_rows_at_the_second_reading_are_never_refused(seed):
    """Dependent columns in different units and far from zero, and rows without weight."""
    X, y, _ = data(seed)
    centred = X[:, [0, 1, 2, 3, 0, 4]] - X[:, [0, 1, 2, 3, 0, 4]].mean(axis=0)
    centred[:, 5] = 1.0
    for fit_intercept, offset in product((True, False), (0, 1e6, -1e9)):
        with case(fit_intercept, offset):
            shifted = centred * 10.0 ** np.arange(-3, 3) + offset
            source = cut(70, shifted, y + offset, np.arange(N) % 3.0)
            model = ensemble(seed, 1.0, fit_intercept=fit_intercept).fit(source, None)
            assert np.isfinite(model.coef_).all()


def test_columns_far_from_zero_are_not_distinguished_by_rounding(seed):
    """Two columns proportional to each other and one that is constant: the shortest solution,
    whatever the means.
    """
    rng = np.random.default_rng(seed)
    centred = rng.standard_normal((300, P))
    y = centred[:, 3:] @ rng.standard_normal(P - 3) + centred[:, 0] + rng.standard_normal(300)
    exact = centred.copy()
    exact[:, 1] = exact[:, 0] * (1 + 1e-9)
    exact[:, 2] = 0.0
    expected = ensemble(seed).fit(exact, y).coef_
    for offset, size in product((1e2, 1e4, 1e6), (5, 97)):
        X = centred + offset * (1 + rng.uniform(size=P))
        X[:, 1] = X[:, 0] * (1 + 1e-9)
        X[:, 2] = 7.3 * offset
        stream = ensemble(seed)
        for batch in cut(size, X, y)():
            stream.partial_fit(*batch)
        from_blocks = ensemble(seed).fit(cut(size, X, y), None)
        for model in (ensemble(seed).fit(X, y), from_blocks, stream):
            with case(offset, size):  # the tolerance is what rounding X itself does
                assert_allclose(model.coef_, expected, rtol=0, atol=1e-12 * offset)


@pytest.mark.parametrize("make", [OLSEnsembleRegressor, OLSEnsembleRegressorCV])
def test_members_that_draw_rows_need_an_array_in_memory(make, seed):
    X, y, _ = data(seed)
    for max_samples in (0.5, N):
        facts = f"max_samples={max_samples}", "array in memory", "1.0"
        assert_refused(make(5, max_samples=max_samples), (cut(64, X, y), None), *facts)


@pytest.mark.parametrize("q", [None, 2])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_sizes_are_chosen_by_exact_cross_validation_over_row_groups(fit_intercept, q, seed):
    """Known folds: ordinary cross-validation over the folds must give the same curve."""
    folds = row_groups(0, N, FOLDS, FOLD_SEED).astype(int)
    X, Y, _ = data(seed, q)
    Y = Y + 20 * np.random.default_rng(seed).standard_normal(Y.shape)
    if not fit_intercept:  # far from zero, all columns would look alike
        X = X - X.mean(axis=0)
    settings = {"random_state": seed, "scale": 1.0, "fit_intercept": fit_intercept}
    expected = OLSEnsembleRegressorCV(30, cv=PredefinedSplit(folds), **settings).fit(X, Y)
    model = OLSEnsembleRegressorCV(30, **settings).fit(cut(64, X, Y)(), None)
    assert model.criterion_ == "kfold"
    assert model.max_features_ == expected.max_features_
    scores = expected.cv_results_["mean_test_score"]
    assert_allclose(model.cv_results_["mean_test_score"], scores, rtol=1e-8)
    assert_allclose(model.risk_curve(), expected.risk_curve(), rtol=1e-8)
    assert_allclose(model.coef_, expected.coef_, atol=1e-8)


def test_tuning_from_blocks_with_dependent_columns_and_gcv(seed):
    X, y, _ = data(seed)
    twins = X.copy()
    twins[:, 3] = X[:, 2]
    for columns, cv, cv_in_memory in ((X, "gcv", "gcv"), (twins, None, 5)):
        model = OLSEnsembleRegressorCV(30, cv=cv, scale=1.0, random_state=seed)
        expected = clone(model).set_params(cv=cv_in_memory).fit(columns, y)
        model.fit(cut(64, columns, y), None)
        assert model.criterion_ == expected.criterion_
        assert model.score(columns, y) == pytest.approx(expected.score(columns, y), abs=0.05)


def test_out_of_bag_rows_need_an_array_in_memory(seed):
    X, y, _ = data(seed)
    assert_refused(OLSEnsembleRegressorCV(30, cv="oob"), (cut(64, X, y)(), None), "cv='oob'")


def replaced(array, rows, value):
    array = array.copy()
    array[rows] = value
    return array


def test_bad_blocks_are_named(seed):
    X, y, weight = data(seed)
    text = y[:50].astype(str)
    for source, *facts in [
        (iter([(X[:50], y[:50]), (X[50:90, :-1], y[50:90])]), "block 1", "11 columns", "12"),
        (iter([(X[:50], y[:49])]), "block 0", "50 rows of X, 49 of y"),
        (iter([]), "0 rows"),
        (iter([(X[:1], y[:1])]), "1 rows"),
        (iter([X[:50]]), "block 0", "(X, y)"),
        (iter([(X[:50], y[:50], -np.ones(50))]), "block 0", "negative weights"),
        (iter([(X[:50].astype(str), y[:50])]), "block 0", "<U"),
        (iter([(X[:50], text.astype(object) + "x")]), "y of block 0"),
        (iter([(X[:50, 0], y[:50])]), "block 0", "(50,)"),
    ]:
        with case(*facts):
            assert_refused(ensemble(seed), (source, None), *facts)
    fitted = ensemble(seed).fit(X, y)
    nan_rows = cut(100, replaced(X, [205, 211], np.nan), y)
    nan_weight = cut(100, X, y, replaced(weight, 207, np.nan))
    for source, *facts in [
        (nan_rows, "block 2", "rows 200 to 299", "X, in 2 rows: 205, 211"),
        (nan_weight, "block 2", "sample_weight, in 1 rows: 207"),
        (cut(100, X, replaced(y, 301, np.inf)), "block 3", "y, in 1 rows: 301"),
        (cut(100, replaced(X, 3, np.inf), y), "block 0", "X, in 1 rows: 3"),
        (cut(100, X * 1e200, y), "block 0", "column 0 of X"),
        (lambda: None, "None", "iterator"),
        (lambda: 3, "3", "iterator"),
    ]:
        with case(*facts):
            assert_refused(ensemble(seed), (source, None), *facts)
            assert_refused(fitted, (source, None), *facts)


@pytest.mark.parametrize("make", ENSEMBLES)
def test_blocks_need_two_rows_with_weight(make, seed):
    X, y, _ = data(seed)
    for n_positive in (0, 1):
        weight = (np.arange(N) < n_positive).astype(float)
        facts = f"positive for {n_positive} of 1200 rows", "at least 2"
        assert_refused(make(n_estimators=5), (cut(100, X, y, weight), None), *facts)


@pytest.mark.parametrize("number", [0, 31, 32, 495, 511, 512])
def test_a_bad_block_of_many_is_named(number):
    """Also one that completes a run of blocks that are summed about one shift."""
    rng = np.random.default_rng(number)
    rows = [rng.standard_normal((10 * 520, 4)), rng.standard_normal(10 * 520)]
    rows[number % 2][10 * number + 3] = np.nan
    location = f"{'Xy'[number % 2]}, in 1 rows: {10 * number + 3}"
    source = cut(10, *rows)
    assert_refused(OLSEnsembleRegressor(3), (source, None), f"block {number} ", location)


def test_bad_files_are_named(seed, tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    X, y, weight = data(seed)
    write_npy(tmp_path, X, y, weight)
    write_parquet(tmp_path, X, y, weight)
    numbers = {"y": [1.0, 2.0, 2.0]}
    colours = {"a": [1.0, 2.0, 3.0], "colour": ["red", "blue", "red"]}
    pq.write_table(pa.table(colours | numbers), tmp_path / "text.parquet")
    pq.write_table(pa.table({"a": [1.0, None, 3.0]} | numbers), tmp_path / "null.parquet")
    pq.write_table(pa.table(numbers), tmp_path / "alone.parquet")
    (tmp_path / "X.zarr").mkdir()
    for name, target, *facts in (
        ("X.npy", "target", "'target'", "no named columns"),
        ("X.npy", 2.0, "()", f"{N} rows"),
        ("X.npy", y[:-1], f"{N - 1}", f"{N} rows"),
        ("X.npy", None, "y is None"),
        ("one.parquet", "price", "'price'", "'x0'"),
        ("many", None, "y is None"),
        ("y.npy", y, "(1200,)", "2D"),
        ("text.parquet", "y", "1 of 2 columns", "'colour'"),
        ("null.parquet", "y", "in X, in 1 rows: 1"),
        ("alone.parquet", "y", "for X"),
        ("X.zarr", y, "X.zarr", ".npy or .parquet", "iterator of blocks"),
    ):
        with case(name, target):
            assert_refused(ensemble(seed), (tmp_path / name, target), *facts)
    missing = (tmp_path / "missing.npy", y)
    assert_refused(ensemble(seed), missing, "missing.npy", error=FileNotFoundError)
    assert_refused(ensemble(seed), (cut(10, X, y)(), y), "pass y=None")


def test_files_that_were_cut_short_are_refused(seed, tmp_path):
    X, y, weight = data(seed)
    array = write_npy(tmp_path, X, y, weight)[0]
    parquet, folder = write_parquet(tmp_path, X, y, weight)
    (folder / "2.parquet").write_bytes(parquet.read_bytes()[:1000])
    for path in (array, parquet):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
    for path, target in ((array, y), (parquet, "target"), (folder, "target")):
        assert_refused(ensemble(seed), (path, target), "cut short")


@pytest.mark.parametrize("q", [None, 2])
def test_blocks_without_rows_or_weight_add_nothing(q, seed):
    X, y, _ = data(seed, q)
    parts = [(X[a:b], y[a:b]) for a, b in pairwise([0, 0, 300, 300, N])]
    assert_same(ensemble(seed).fit(lambda: iter(parts), None), ensemble(seed).fit(X, y))
    dependent = np.c_[X[:, :-1], X[:, 0]]
    weight = (np.arange(N) >= 200).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = ensemble(seed, 1.0).fit(cut(200, dependent, y, weight), None)
    expected = ensemble(seed, 1.0).fit(dependent[200:], y[200:])
    assert_allclose(model.predict(dependent), expected.predict(dependent), atol=1e-6)


def test_rows_are_reported_while_blocks_are_read(seed, capsys):
    X, y, _ = data(seed)
    ensemble(seed, verbose=1).fit(cut(350, X, y)(), None)
    out = capsys.readouterr().out
    assert "rows: 350 of an unknown number" in out
    assert "rows: 700" in out


LIMITED = """
import resource, sys
import numpy as np
from olsen import OLSEnsembleRegressor, OLSEnsembleRegressorCV
X = np.random.default_rng(0).standard_normal((500, 20))
OLSEnsembleRegressor(2, n_jobs=2, solver="gram").fit(X, X[:, 0])
status = open("/proc/self/status")
used = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData"))
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
    paths = [str(tmp_path / f"{name}.npy") for name in "Xy"]
    X = np.lib.format.open_memmap(paths[0], mode="w+", dtype=np.float32, shape=(100_000, 500))
    for start in range(0, 100_000, 10_000):
        X[start : start + 10_000] = rng.standard_normal((10_000, 500), dtype=np.float32)
    np.save(paths[1], np.asarray(X[:, :5].sum(axis=1)))
    del X
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", LIMITED, *paths]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "fitted (500,)", done.stderr[-2000:]


def test_moments_of_more_columns_than_openblas_bears(monkeypatch, seed):
    """Its symmetric product crashes from 20 000 columns on; tiles are exercised on small ones."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, 70))
    Y = rng.standard_normal((40, 2))
    expected = from_data(X, Y, None, centre=True)
    monkeypatch.setattr("olsen._execution.arrays.LARGE_PRODUCT", 1)
    monkeypatch.setattr("olsen._execution.arrays.TILE", 32)
    in_one_product = from_data(X, Y, None, centre=True)
    monkeypatch.setattr("olsen._data.moments.BLOCK_BYTES", 5000)
    in_blocks = from_data(X, Y, None, centre=True)
    accumulator = Accumulator(70, 2, True)
    accumulator.add(X, Y)
    for moments in (in_one_product, in_blocks, accumulator.moments()):
        assert_allclose(moments.G, expected.G, rtol=0, atol=1e-12)
        assert_array_equal(moments.G, moments.G.T)
