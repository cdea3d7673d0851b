"""Data in row blocks: the coefficients of arrays, in constant memory, and nothing half-fitted on
bad input.
"""

import os
import subprocess
import sys
import textwrap
import warnings
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
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

N, P = 1200, 12
THREE = (OLSEnsembleRegressor, OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks.files, "BLOCK_BYTES", 6_000)


def data(seed, q=None):
    return linear_data(seed, N, P, q, far=100.0)


def cut(size, *arrays):
    """Function that yields the blocks of arrays."""
    return lambda: (tuple(a[i : i + size] for a in arrays) for i in range(0, len(arrays[0]), size))


def ensemble(seed, **settings):
    return OLSEnsembleRegressor(
        15, settings.pop("max_features", 0.5), random_state=seed, **settings
    )


def assert_same(got, expected, tol=1e-8):
    np.testing.assert_allclose(got.coef_, expected.coef_, rtol=0, atol=tol)
    np.testing.assert_allclose(got.intercept_, expected.intercept_, rtol=tol)
    # what is refined on rows at hand takes a second pass over blocks
    assert (
        got.n_features_in_ == P
        and got.n_estimators_ == 15
        and got.n_fallbacks_ >= expected.n_fallbacks_
    )


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


def open_dataset(path):
    return pytest.importorskip("pyarrow.dataset").dataset(path)


# name -> function(folder, X, y, weight) that returns the arguments of fit
SOURCES = {
    "array": lambda folder, *rows: rows,
    "memory map": lambda folder, *rows: tuple(
        np.load(path, mmap_mode="r") for path in write_npy(folder, *rows)
    ),
    "slice of a map": lambda folder, *rows: tuple(
        np.load(path, mmap_mode="r")[3:]
        for path in write_npy(folder, *(np.r_[a[:3], a] for a in rows))
    ),
    "npy": lambda folder, *rows: write_npy(folder, *rows),
    "npy by columns": lambda folder, *rows: write_npy(
        folder, np.asfortranarray(rows[0]), *rows[1:]
    ),
    "npy and arrays": lambda folder, *rows: (str(write_npy(folder, *rows)[0]), *rows[1:]),
    "parquet": lambda folder, *rows: (write_parquet(folder, *rows)[0], "target", "w"),
    "folder": lambda folder, *rows: (write_parquet(folder, *rows)[1], "target", "w"),
    "dataset": lambda folder, *rows: (open_dataset(write_parquet(folder, *rows)[0]), "target", "w"),
    "function": lambda folder, *rows: (cut(97, *rows), None, None),
    "iterator": lambda folder, *rows: (cut(64, *rows)(), None, None),
    "sparse blocks": lambda folder, *rows: (
        ((sp.csr_array(X), *other) for X, *other in cut(50, *rows)()),
        None,
        None,
    ),
}


def keeps_rows(model):
    """Whether a model refers to its training rows."""
    try:
        model.member_coefs()
    except ValueError as error:
        assert "needs the training rows" in str(error)
        return False
    return True


@pytest.mark.parametrize("source", [*SOURCES, "partial_fit"])
def test_every_source_gives_the_coefficients_of_the_array(source, seed, tmp_path, monkeypatch):
    """To 1e-8, from the same numbers. Coefficients of single-precision data are rounded to it, once
    and at the end.
    """
    for dtype in (np.float64, np.float32):
        folder = tmp_path / dtype.__name__
        folder.mkdir()
        X, y, weight = (a.astype(dtype) for a in data(seed))
        expected = ensemble(seed).fit(*(a.astype(np.float64) for a in (X, y, weight)))
        if "map" in source:  # just above the quarter of memory from which it is read in blocks
            monkeypatch.setattr(blocks.memory, "available_bytes", lambda X=X: 3.9 * X.nbytes)
        model = ensemble(seed)
        if source == "partial_fit":
            for batch in cut(200, X, y, weight)():
                model.partial_fit(*batch)
        else:
            model.fit(*SOURCES[source](folder, X, y, weight))
        assert keeps_rows(model) == (source == "array"), (
            "everything but the array is read in pieces"
        )
        assert model.coef_.dtype == dtype
        half_a_unit = np.finfo(dtype).eps / 2 if dtype == np.float32 else 0.0
        np.testing.assert_allclose(
            model.coef_.astype(np.float64), expected.coef_, rtol=half_a_unit, atol=1e-8
        )
        np.testing.assert_allclose(
            np.float64(model.intercept_), expected.intercept_, rtol=half_a_unit + 1e-8
        )
        assert (
            model.n_features_in_ == P
            and model.n_estimators_ == 15
            and model.n_fallbacks_ == expected.n_fallbacks_
        )
        if source in ("parquet", "folder", "dataset"):
            assert model.feature_names_in_.tolist() == [f"x{j}" for j in range(P)]


def test_settings_solvers_and_several_targets(seed):
    for settings in ({}, {"fit_intercept": False}, {"scale": 0.7}, {"sampling": "bernoulli"}):
        for q in (None, 3):
            with case(settings, q):
                X, Y, _ = data(seed, q)
                expected = ensemble(seed, **settings).fit(X, Y)
                assert_same(ensemble(seed, **settings).fit(cut(53, X, Y), None), expected, 1e-7)
    X, y, _ = data(seed)
    for solver in ("gram", "masked_cg", "orthogonal"):
        with case(solver):
            model = ensemble(seed, solver=solver).fit(cut(97, X, y), None)
            assert model.solver_ == solver
            assert_same(model, ensemble(seed).fit(X, y))


def test_threads_change_nothing_and_small_memory_maps_are_loaded(seed, tmp_path):
    X, y, weight = data(seed)
    np.save(tmp_path / "X.npy", X)
    assert keeps_rows(ensemble(seed).fit(np.load(tmp_path / "X.npy", mmap_mode="r"), y))
    one, three = (ensemble(seed, n_jobs=n).fit(cut(20, X, y, weight), None) for n in (1, 3))
    np.testing.assert_array_equal(one.coef_, three.coef_)


def test_one_weight_for_all_rows(seed, tmp_path):
    X, y, _ = data(seed)
    parquet = write_parquet(tmp_path, X, y, y)[0]
    rows = open_dataset(parquet).to_table().drop_columns("w")
    pytest.importorskip("pyarrow.parquet").write_table(rows, parquet)
    given = {
        "npy": (write_npy(tmp_path, X, y, y)[0], y, 2.0),
        "parquet": (parquet, "target", 2),
        "blocks": ((lambda: ((*block, 2.0) for block in cut(200, X, y)())), None),
    }
    for cls in THREE:
        expected = cls(n_estimators=10, random_state=0).fit(cut(200, X, y, np.full(N, 2.0)), None)
        for name, arguments in given.items():
            with case(cls, name):
                found = cls(n_estimators=10, random_state=0).fit(*arguments)
                np.testing.assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-8)


def test_blocks_that_are_frames_keep_their_names(seed):
    pd = pytest.importorskip("pandas")
    X, y, _ = data(seed)
    names = list("abcdefghijkl")
    frame = pd.DataFrame(X, columns=names)
    for cls in THREE:
        model = cls(n_estimators=10, random_state=0)
        fit = lambda rows, model=model: clone(model).fit(cut(300, rows, pd.Series(y)), None)  # noqa: E731
        assert fit(frame).feature_names_in_.tolist() == names
        assert not hasattr(fit(X), "feature_names_in_") and not hasattr(
            fit(pd.DataFrame(X)), "feature_names_in_"
        )
    for columns, odd in ((names[::-1], "'l'"), ([*names[:-1], "z"], "'l', 'z'")):
        other = frame.set_axis(columns, axis=1)
        assert_refused(
            ensemble(seed),
            (iter([(frame[:30], y[:30]), (other[30:], y[30:])]), None),
            "block 1",
            odd,
        )


def test_blocks_of_tables_are_not_mixed_with_another_order_of_columns(seed):
    pd, pl, pa = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    X, y, _ = data(seed)
    X = X[:, :3]
    make = {
        "pandas": lambda rows, names: pd.DataFrame(rows, columns=list("abc"))[names],
        "polars": lambda rows, names: pl.DataFrame(rows, schema=list("abc"), orient="row")[names],
        "Table": lambda rows, names: pa.table(dict(zip("abc", rows.T, strict=True))).select(names),
        "RecordBatch": (
            lambda rows, names: pa.RecordBatch.from_pydict(
                dict(zip("abc", rows.T, strict=True))
            ).select(names)
        ),
    }
    expected = ensemble(seed).fit(cut(200, X, y), None)
    reordered = ["c", "b", "a"]
    for (first, one), (second, other) in product(make.items(), repeat=2):
        with case(first, second):
            model = ensemble(seed).fit(
                iter([(one(X[:99], list("abc")), y[:99]), (other(X[99:], list("abc")), y[99:])]),
                None,
            )
            assert model.feature_names_in_.tolist() == list("abc")
            np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-10)
            mixed = [(one(X[:99], list("abc")), y[:99]), (other(X[99:], reordered), y[99:])]
            assert_refused(
                ensemble(seed), (iter(mixed), None), "block 1", "another order", "'c', 'a'"
            )
    for name, table in make.items():
        named, nameless = (table(X[:99], list("abc")), y[:99]), (X[99:], y[99:])
        with case(name):
            assert_refused(
                ensemble(seed),
                (iter([named, nameless]), None),
                "block 1",
                "no names of columns",
                "'a'",
            )
            assert_refused(
                ensemble(seed),
                (iter([nameless, named]), None),
                "block 1",
                "'a'",
                "first block has no names",
            )
    targets = pd.DataFrame({"u": y, "v": X[:, 0]})
    swapped = [(X[:99], targets[:99]), (X[99:], targets[["v", "u"]][99:])]
    assert_refused(ensemble(seed), (iter(swapped), None), "block 1", "other targets", "'v', 'u'")


def test_record_batches_have_names_in_memory_too(seed):
    pa = pytest.importorskip("pyarrow")
    X, y, _ = data(seed)
    batch = pa.RecordBatch.from_pydict(dict(zip("abc", X[:, :3].T, strict=True)))
    for cls in THREE:
        model = cls(n_estimators=10, random_state=0).fit(batch, y)
        assert model.feature_names_in_.tolist() == list("abc")
        np.testing.assert_allclose(
            model.predict(batch), model.predict(batch.to_pandas()), rtol=1e-12
        )
        with pytest.raises(ValueError, match="same order"):
            model.predict(batch.select(["c", "b", "a"]))


def test_moments_survive_large_means_and_drift(seed):
    """Columns far from zero that move from block to block: as accurate as two passes; raw sums lose
    all digits.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((2000, 4)) + 1e6 + np.linspace(0, 30, 2000)[:, None]
    Y = rng.standard_normal((2000, 2)) - 1e5
    weight = rng.uniform(0.1, 2, 2000)
    for centre in (True, False):
        accumulator = Accumulator(4, 2, centre)
        for block in cut(20, X, Y, weight)():
            assert accumulator.add(*block)
        got, expected = accumulator.moments(), from_data(X, Y, weight, centre=centre)
        for name in ("G", "C", "yy", "mean_x", "mean_y"):
            scale = np.abs(getattr(expected, name)).max()
            np.testing.assert_allclose(
                getattr(got, name), getattr(expected, name), rtol=0, atol=1e-9 * scale
            )
        assert got.n_rows == 2000 and got.weight == pytest.approx(weight.sum())


def test_distrusted_members_come_from_a_second_pass(seed):
    X, y, _ = data(seed)
    X[:, 1] = X[:, 0] * (1 + 1e-9)
    assert_same(ensemble(seed).fit(cut(97, X, y), None), ensemble(seed).fit(X, y), 1e-6)
    assert_refused(ensemble(seed), (cut(97, X, y)(), None), "cannot be read again", "function")


def test_other_rows_at_the_second_reading_are_noticed_and_the_same_never(seed):
    X, y, _ = data(seed)
    Z = np.c_[X[:, :-1], X[:, 0]]  # dependent
    for fit_intercept in (True, False):
        how = {"max_features": 1.0, "fit_intercept": fit_intercept}
        later = {
            "1150": (Z[:1150], y[:1150]),
            "others": (Z + (Z[7, 2] == Z) * 0.1, y),
            "11": (Z[:, :-1], y),
        }
        for fact, other in later.items():
            readings = iter([(Z, y), other])
            assert_refused(
                ensemble(seed, **how), (lambda it=readings: iter([next(it)]), None), "second", fact
            )
    blocks = cut(50, Z, y)()
    assert_refused(
        ensemble(seed, max_features=1.0),
        (lambda: blocks, None),
        f"{N} rows",
        "and 0 at",
        "fresh iterator",
    )
    weight = np.arange(N) % 3.0
    for settings in ({}, {"fit_intercept": False}):
        for offset in (0, 1e6, -1e9):
            with case(settings, offset):
                near = (np.c_[X[:, :4] - X[:, :4].mean(axis=0), np.ones(N)])[:, [0, 1, 2, 3, 0, 4]]
                rows = cut(70, near * 10.0 ** np.arange(-3, 3) + offset, y + offset, weight)
                assert np.isfinite(
                    ensemble(seed, max_features=1.0, **settings).fit(rows, None).coef_
                ).all()


def test_columns_far_from_zero_are_not_told_apart_by_rounding(seed):
    """Two columns proportional to each other and one that is constant: the shortest solution,
    whatever the means.
    """
    rng = np.random.default_rng(seed)
    near = rng.standard_normal((300, P))
    y = near[:, 3:] @ rng.standard_normal(P - 3) + near[:, 0] + rng.standard_normal(300)
    exact = near.copy()
    exact[:, 1], exact[:, 2] = exact[:, 0] * (1 + 1e-9), 0.0
    expected = ensemble(seed).fit(exact, y).coef_
    for offset in (1e2, 1e4, 1e6):
        X = near + offset * (1 + rng.uniform(size=P))
        X[:, 1], X[:, 2] = X[:, 0] * (1 + 1e-9), 7.3 * offset
        for size in (5, 97):
            stream = ensemble(seed)
            for part in cut(size, X, y)():
                stream.partial_fit(*part)
            for model in (
                ensemble(seed).fit(X, y),
                ensemble(seed).fit(cut(size, X, y), None),
                stream,
            ):
                with case(offset, size):  # what rounding X itself does
                    np.testing.assert_allclose(model.coef_, expected, rtol=0, atol=1e-12 * offset)


def test_members_that_draw_rows_need_them_in_memory(seed):
    X, y, _ = data(seed)
    for cls, rows in product((OLSEnsembleRegressor, OLSEnsembleRegressorCV), (0.5, N)):
        assert_refused(
            cls(5, max_samples=rows),
            (cut(64, X, y), None),
            f"max_samples={rows}",
            "array in memory",
            "1.0",
        )


def test_sizes_are_chosen_by_exact_cross_validation_over_row_groups(seed):
    """The folds are known, so ordinary cross-validation over them must give the same curve."""
    folds = row_groups(0, N, FOLDS, FOLD_SEED).astype(int)
    for fit_intercept in (True, False):
        for q in (None, 2):
            X, Y, _ = data(seed, q)
            Y = Y + 20 * np.random.default_rng(seed).standard_normal(Y.shape)
            # far from zero and without intercept, all columns look alike
            X = X if fit_intercept else X - X.mean(axis=0)
            settings = {"random_state": seed, "scale": 1.0, "fit_intercept": fit_intercept}
            expected = OLSEnsembleRegressorCV(30, cv=PredefinedSplit(folds), **settings).fit(X, Y)
            model = OLSEnsembleRegressorCV(30, **settings).fit(cut(64, X, Y)(), None)
            with case(fit_intercept, q):
                assert model.criterion_ == "kfold" and model.max_features_ == expected.max_features_
                scores = (
                    model.cv_results_["mean_test_score"],
                    expected.cv_results_["mean_test_score"],
                )
                np.testing.assert_allclose(*scores, rtol=1e-8)
                np.testing.assert_allclose(model.risk_curve(), expected.risk_curve(), rtol=1e-8)
                np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-8)


def test_tuning_from_blocks_with_dependent_columns_and_gcv(seed):
    X, y, _ = data(seed)
    settings = {"random_state": seed, "scale": 1.0}
    plain = OLSEnsembleRegressorCV(30, cv="gcv", **settings).fit(cut(64, X, y)(), None)
    in_memory = OLSEnsembleRegressorCV(30, cv="gcv", **settings).fit(X, y)
    assert plain.criterion_ == "gcv" and plain.score(X, y) == pytest.approx(
        in_memory.score(X, y), abs=0.05
    )
    model = OLSEnsembleRegressorCV(30, cv="oob")  # needs every row again
    assert_refused(model, (cut(64, X, y)(), None), "cv='oob'")
    X[:, 3] = X[:, 2]
    model = OLSEnsembleRegressorCV(30, **settings).fit(cut(64, X, y), None)
    expected = OLSEnsembleRegressorCV(30, cv=5, **settings).fit(X, y)
    assert np.isfinite(model.cv_results_["mean_test_score"]).all()
    assert model.score(X, y) == pytest.approx(expected.score(X, y), abs=0.05)


def test_bad_blocks_are_named_and_nothing_is_left_behind(seed):
    X, y, weight = data(seed)

    def put(array, rows, value):
        array = array.copy()
        array[rows] = value
        return array

    weighted = (cut(100, X, y, put(weight, 207, np.nan)), None)
    cases = [
        (iter([(X[:50], y[:50]), (X[50:90, :-1], y[50:90])]), "block 1", "11 columns", "12"),
        (iter([(X[:50], y[:49])]), "block 0", "50 rows of X, 49 of y"),
        (iter([]), "0 rows"),
        (iter([(X[:1], y[:1])]), "1 rows"),
        (iter([X[:50]]), "block 0", "(X, y)"),
        (iter([(X[:50], y[:50], -np.ones(50))]), "block 0", "negative weights"),
        (iter([(X[:50].astype(str), y[:50])]), "block 0", "<U"),
        (iter([(X[:50], y[:50].astype(str).astype(object) + "x")]), "y of block 0"),
        (iter([(X[:50, 0], y[:50])]), "block 0", "(50,)"),
        (
            cut(100, put(X, [205, 211], np.nan), y),
            "block 2",
            "rows 200 to 299",
            "X, in 2 rows: 205, 211",
        ),
        (cut(100, X, put(y, 301, np.inf)), "block 3", "y, in 1 rows: 301"),
        (cut(100, put(X, 3, np.inf), y), "block 0", "X, in 1 rows: 3"),
        (cut(100, X * 1e200, y), "block 0", "column 0 of X"),
        (lambda: None, "None", "iterator"),
        (lambda: 3, "3", "iterator"),
    ]
    fitted = ensemble(seed).fit(X, y)
    for source, *facts in cases:
        with case(*facts):
            for model in (ensemble(seed), fitted) if callable(source) else (ensemble(seed),):
                assert_refused(model, (source, None), *facts)
    assert_refused(ensemble(seed), weighted, "block 2", "sample_weight, in 1 rows: 207")
    for positive in (0, 1):
        weight = (np.arange(N) < positive).astype(float)
        facts = f"positive for {positive} of 1200 rows", "at least 2"
        for cls in THREE:
            assert_refused(cls(n_estimators=5), (cut(100, X, y, weight), None), *facts)
    for number in (
        0,
        31,
        32,
        495,
        511,
        512,
    ):  # also in those that complete a run of blocks summed about one shift
        rng = np.random.default_rng(number)
        rows = [rng.standard_normal((10 * 520, 4)), rng.standard_normal(10 * 520)]
        rows[number % 2][10 * number + 3] = np.nan
        where = f"{'Xy'[number % 2]}, in 1 rows: {10 * number + 3}"
        assert_refused(OLSEnsembleRegressor(3), (cut(10, *rows), None), f"block {number} ", where)


def test_bad_files_are_named(seed, tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    X, y, weight = data(seed)
    write_npy(tmp_path, X, y, weight)
    write_parquet(tmp_path, X, y, weight)
    text = {"a": [1.0, 2.0, 3.0], "colour": ["red", "blue", "red"], "y": [1.0, 2.0, 2.0]}
    pq.write_table(pa.table(text), tmp_path / "text.parquet")
    pq.write_table(
        pa.table({"a": [1.0, None, 3.0], "y": [1.0, 2.0, 2.0]}), tmp_path / "null.parquet"
    )
    pq.write_table(pa.table({"y": [1.0, 2.0, 2.0]}), tmp_path / "alone.parquet")
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
    ):
        with case(name, target):
            assert_refused(ensemble(seed), (tmp_path / name, target), *facts)
    (tmp_path / "X.zarr").mkdir()
    assert_refused(
        ensemble(seed), (tmp_path / "X.zarr", y), "X.zarr", ".npy or .parquet", "iterator of blocks"
    )
    assert_refused(
        ensemble(seed), (tmp_path / "nothing.npy", y), "nothing.npy", error=FileNotFoundError
    )
    assert_refused(ensemble(seed), (cut(10, X, y)(), y), "pass y=None")
    (tmp_path / "many" / "2.parquet").write_bytes((tmp_path / "one.parquet").read_bytes()[:1000])
    assert_refused(ensemble(seed), (tmp_path / "many", "target"), "cut short")
    for name in ("X.npy", "one.parquet"):
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])
        assert_refused(
            ensemble(seed), (tmp_path / name, y if name == "X.npy" else "target"), "cut short"
        )


def test_blocks_without_rows_and_without_weight_add_nothing_and_rows_are_reported(seed, capsys):
    for q in (None, 2):
        X, y, _ = data(seed, q)
        parts = [(X[:0], y[:0]), (X[:300], y[:300]), (X[300:300], y[300:300]), (X[300:], y[300:])]
        assert_same(
            ensemble(seed).fit(lambda parts=parts: iter(parts), None), ensemble(seed).fit(X, y)
        )
    Z, weight = np.c_[X[:, :-1], X[:, 0]], np.r_[np.zeros(200), np.ones(N - 200)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = ensemble(seed, max_features=1.0).fit(cut(200, Z, y, weight), None)
    expected = ensemble(seed, max_features=1.0).fit(Z[200:], y[200:])
    np.testing.assert_allclose(fitted.predict(Z), expected.predict(Z), atol=1e-6)
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
    X = np.lib.format.open_memmap(
        tmp_path / "X.npy", mode="w+", dtype=np.float32, shape=(100_000, 500)
    )
    for start in range(0, 100_000, 10_000):
        X[start : start + 10_000] = rng.standard_normal((10_000, 500), dtype=np.float32)
    np.save(tmp_path / "y.npy", np.asarray(X[:, :5].sum(axis=1)))
    del X
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(LIMITED),
        str(tmp_path / "X.npy"),
        str(tmp_path / "y.npy"),
    ]
    out = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    )
    assert out.stdout.strip() == "fitted (500,)", out.stderr[-2000:]
