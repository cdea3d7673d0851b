"""Bad input: the error names the user's numbers, and a fitted estimator stays usable. And what only
looks odd.
"""

import copy
import itertools
import subprocess
import sys
import textwrap
import warnings
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    LeaveOneOut,
    LeavePOut,
    PredefinedSplit,
    RepeatedKFold,
    ShuffleSplit,
    TimeSeriesSplit,
)

from loops import case
from olsen import (
    AdaptiveOLSEnsembleRegressor,
    DropoutRegressor,
    OLSEnsembleRegressor,
    OLSEnsembleRegressorCV,
    member_coefficients,
)
from olsen._estimators.inputs import RepeatedRowsWarning
from olsen._execution import arrays, memory
from random_problems import random_problem

X, y = random_problem(0)
N, P = X.shape
WEIGHT = np.ones(N)


def plain(**settings):
    return OLSEnsembleRegressor(
        **{"n_estimators": 5, "max_features": 0.3, "random_state": 0, **settings}
    )


def tuned(**settings):
    return OLSEnsembleRegressorCV(**{"n_estimators": 20, "random_state": 0, **settings})


def adaptive(**settings):
    return AdaptiveOLSEnsembleRegressor(**{"n_estimators": 20, "random_state": 0, **settings})


TUNED = {  # every way of tuning, with as many members as it takes
    "uniform": OLSEnsembleRegressorCV,
    "determinantal": partial(OLSEnsembleRegressorCV, sampling="determinantal"),
    "adaptive": AdaptiveOLSEnsembleRegressor,
}


def with_value(array, place, value):
    found = array.astype(object) if isinstance(value, str) or value is None else array.copy()
    found[place] = value
    return found


REFUSED = {  # X, y, weight, parameters, what the message names
    "nan in X": (with_value(X, (3, 4), np.nan), y, None, {}, "X contains NaN"),
    "inf in X": (with_value(X, (3, 4), np.inf), y, None, {}, "X contains infinity"),
    "text in X": (with_value(X, (3, 4), "clay"), y, None, {}, "clay"),
    "nan in y": (X, with_value(y, 2, np.nan), None, {}, "y contains NaN"),
    "inf in y": (X, with_value(y, 2, np.inf), None, {}, "y contains infinity"),
    "none in y": (X, with_value(y, 2, None), None, {}, "y contains NaN"),
    "text in y": (X, with_value(y, 2, "clay"), None, {}, "clay"),
    "times": (X, np.datetime64("2020", "D") + np.arange(N), None, {}, "times"),
    "sparse y": (X, sp.csr_array(y[:, None]), None, {}, "y.*toarray"),
    "masked X": (np.ma.masked_greater(X, 2), y, None, {}, "X is a masked"),
    "masked y": (X, np.ma.masked_greater(y, np.median(y)), None, {}, "y is a masked array with 30"),
    "one row": (X[:1], y[:1], None, {}, r"1 sample.*minimum of 2"),
    "no row": (X[:0], y[:0], None, {}, "0 sample"),
    "no column": (X[:, :0], y, None, {}, r"0 feature.*minimum of 1"),
    "rows differ": (X, y[:-1], None, {}, r"60, 59"),
    "probability above one": (X, y, None, {"max_features": np.full(24, 1.2)}, r"24.*1\.2"),
    "probability below zero": (
        X,
        y,
        None,
        {"max_features": np.r_[-0.1, np.ones(23)]},
        r"-0\.1 for column 0",
    ),
    "no probability": (X, y, None, {"max_features": np.zeros(24)}, "max_features|column"),
    "too few probabilities": (X, y, None, {"max_features": np.ones(5)}, r"\(5,\).*24"),
    "no feature": (X, y, None, {"max_features": 0}, "max_features=0.*24"),
    "too many features": (X, y, None, {"max_features": 25}, "max_features=25.*24"),
    "fraction above one": (X, y, None, {"max_features": 1.5}, r"max_features=1\.5"),
    "too many samples": (X, y, None, {"max_samples": 61}, "max_samples=61.*60"),
    "weights all zero": (X, y, 0 * WEIGHT, {}, "0 of 60|non-zero"),
    "one weight": (X, y, np.r_[1.0, 0 * WEIGHT[1:]], {}, "1 of 60"),
    "negative weight": (X, y, np.r_[-1.0, WEIGHT[1:]], {}, "[Nn]egative.*sample_weight"),
    "wrong weights": (X, y, WEIGHT[:9], {}, "sample_weight.*9"),
    "six hundred decades": (X, y, np.geomspace(1e-300, 1e300, N), {}, "sample_weight.*1e-300"),
    "no members": (X, y, None, {"n_estimators": 0}, "n_estimators.*0"),
    "infinitely many": (X, y, None, {"n_estimators": np.inf}, "determinantal"),
    "sampling": (X, y, None, {"sampling": "coins"}, "sampling.*'coins'"),
    "design": (X, y, None, {"design": "latin"}, "design.*'latin'"),
    "solver": (X, y, None, {"solver": "svd"}, "solver.*'svd'"),
    "mixing": (X, y, None, {"mixing": "median"}, "mixing.*'median'"),
    "scale": (X, y, None, {"scale": np.nan}, "scale.*nan"),
    "threads": (X, y, None, {"n_jobs": 0}, "n_jobs"),
    "seed": (X, y, None, {"random_state": -3}, "-3"),
}


@pytest.mark.filterwarnings("ignore")
def test_refusals_leave_the_fit_alone():
    model = plain().fit(X, y)
    before, defaults = model.predict(X), model.get_params()
    with pytest.raises(ValueError, match="empty list of candidate sizes"):
        tuned(max_features=[]).fit(X, y)
    for name, (bad_X, bad_y, weight, params, message) in REFUSED.items():
        with case(name):
            with pytest.raises((ValueError, TypeError), match=message):
                model.set_params(**params).fit(bad_X, bad_y, weight)
            model.set_params(**defaults)
            np.testing.assert_array_equal(model.predict(X), before)
            for make in () if params else (tuned, adaptive):
                with pytest.raises((ValueError, TypeError), match=message):
                    make().fit(bad_X, bad_y, weight)


def test_new_rows_are_checked():
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    model = plain().fit(X, y)
    frame = pd.DataFrame(X[:, :2], columns=["a", "b"])
    for ask, message in (
        (lambda: model.predict(X[:, :-1]), "23.*24"),
        (lambda: plain().fit(frame, y).predict(frame.rename(columns={"b": "z"})), "z"),
        (lambda: model.predict("rows.npy"), "rows.npy"),
        (lambda: model.predict(np.ma.masked_greater(X, 2)), "masked"),
        (
            lambda: plain().fit(frame.assign(soil="clay", region="north"), y),
            r"2 of 4.*'soil', 'region'",
        ),
        (lambda: member_coefficients(frame.assign(soil="clay"), y, [[0]]), "'soil'"),
        (
            lambda: plain().fit(pd.DataFrame(X[:, :3], columns=list("aba")), y),
            "several columns named 'a'",
        ),
        (lambda: plain().fit(pl.DataFrame(X).lazy(), y), "collect"),
    ):
        with pytest.raises(ValueError, match=message):
            ask()


def assert_times_refused(ask, *facts):
    """In one sentence that names what holds times and the way out."""
    with pytest.raises(ValueError) as raised:
        ask()
    assert all(
        fact in str(raised.value)
        for fact in (*facts, "dates or times", "reference date", "olsen fit --dates")
    )


def test_times_are_no_numbers(tmp_path):
    pd, pl, pa = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    pq, da, dd = (
        pytest.importorskip(name) for name in ("pyarrow.parquet", "dask.array", "dask.dataframe")
    )
    days = np.datetime64("2020-01-01") + np.arange(N)
    columns = {"a": X[:, 0], "when": days}
    targets = {
        "array": days,
        "list": list(days),
        "dates": days.tolist(),
        "durations": days - days[0],
        "Series": pd.Series(days, name="when"),
        "zone": pd.Series(days, name="when").dt.tz_localize("UTC"),
        "DataFrame": pd.DataFrame({"when": days}),
        "objects": pd.Series(days, name="when").astype(object),
        "polars": pl.Series("when", days),
        "polars frame": pl.DataFrame({"when": days}),
        "Arrow": pa.array(days),
        "Arrow column": pa.chunked_array([pa.array(days)]),
        "Arrow table": pa.table({"when": days}),
    }
    tables = {
        "array": np.stack([days, days], axis=1),
        "durations": np.stack([days - days[0]] * 2, axis=1),
        "list": [[1.0, day] for day in days],
        "pandas": pd.DataFrame(columns),
        "polars": pl.DataFrame(columns),
        "Arrow": pa.table(columns),
        "RecordBatch": pa.RecordBatch.from_pydict(columns),
        "objects": pd.DataFrame({"a": X[:, 0], "when": pd.Series(days).astype(object)}),
    }
    pq.write_table(pa.table({**columns, "b": y}), tmp_path / "rows.parquet")
    np.save(tmp_path / "days.npy", days)
    np.save(tmp_path / "X.npy", X)
    frame = dd.from_pandas(pd.DataFrame({**columns, "b": y}), npartitions=2)
    for make in (plain, tuned, adaptive, DropoutRegressor):
        model = make().fit(X[:, :2], y)
        for name, target in targets.items():
            fact = "'when'" if hasattr(target, "name") or hasattr(target, "columns") else "y "
            with case(make, name):
                assert_times_refused(
                    lambda target=target, make=make: make().fit(X, target), "y", fact
                )
        for name, table in tables.items():
            fact = "column 'when'" if hasattr(table, "columns") else "column "
            with case(make, name):
                assert_times_refused(lambda table=table, make=make: make().fit(table, y), "X", fact)
                assert_times_refused(
                    lambda table=table, model=model: model.predict(table), "X", fact
                )
    for make in (plain, tuned, adaptive):
        for name, table in tables.items():
            with case("block", name):
                assert_times_refused(
                    partial(make().fit, lambda table=table: [(table, y)], None), "X of block 0"
                )
        for name, target in targets.items():
            with case("block", name):
                assert_times_refused(
                    partial(make().fit, lambda target=target: [(X, target)], None), "y of block 0"
                )
        for X_given, y_given, fact in (
            (tmp_path / "rows.parquet", "b", "column 'when'"),
            (tmp_path / "rows.parquet", "when", "column 'when'"),
            (tmp_path / "X.npy", tmp_path / "days.npy", "y of block 0"),
            (frame, "b", "column 'when'"),
            (frame[["a", "b"]], frame["when"], "column 'when'"),
            (da.from_array(X, chunks=20), da.from_array(days, chunks=20), "y "),
            (da.from_array(tables["array"], chunks=20), y, "X "),
        ):
            with case(make, fact):
                assert_times_refused(
                    lambda given=(X_given, y_given), make=make: make().fit(*given), fact
                )
    model = plain().fit(X[:, :2], y)
    assert_times_refused(
        lambda: plain().fit(frame[["a", "b"]], y).predict(frame[["a", "b"]].astype("M8[s]")), "'a'"
    )
    assert_times_refused(
        lambda: model.predict(da.from_array(tables["array"], chunks=20)), "column 0"
    )
    booleans = plain().fit(pd.DataFrame({"a": X[:, 0], "b": X[:, 1] > 0}), y)
    np.testing.assert_allclose(
        booleans.coef_, plain().fit(np.c_[X[:, 0], X[:, 1] > 0], y).coef_, rtol=1e-12
    )


def test_missing_values_are_counted_and_the_first_is_named():
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    gaps = with_value(with_value(with_value(X, (7, 2), np.nan), (5, 4), np.nan), (5, 3), np.nan)
    names = [f"c{j}" for j in range(P)]
    frame = pd.DataFrame(gaps, columns=names)
    first = (
        r"Input X contains NaN: 3 missing values in 2 of 60 rows, .* row 5 \(counted from 0\),"
        r" column {}\. .*Imputer"
    )
    tables = (
        (gaps, "3"),
        (gaps.astype(object), "3"),
        (sp.csr_array(gaps), "3"),
        (sp.csc_array(gaps), "3"),
        (frame, "'c3'"),
        (pl.from_pandas(frame), "'c3'"),
    )
    infinite = with_value(X, (9, 1), -np.inf)
    for make in (plain, tuned, adaptive, DropoutRegressor):
        model, by_name = make().fit(X, y), make().fit(frame.fillna(0.0), y)
        for table, column in tables:
            with case(make, type(table)):
                with pytest.raises(ValueError, match=first.format(column)):
                    make().fit(table, y)
                with pytest.raises(ValueError, match=first.format(column)):
                    (by_name if column == "'c3'" else model).predict(table)
        for ask in (
            lambda make=make: make().fit(infinite, y),
            lambda model=model: model.predict(infinite),
        ):
            with pytest.raises(
                ValueError,
                match=r"X contains infinity: 1 infinite value in 1 .* row 9 .* column 1\.",
            ):
                ask()
        targets = pd.DataFrame({"u": y, "v": with_value(y, 2, np.nan)})
        for target, place in (
            (targets["v"], "row 2"),
            (targets, r"row 2 \(counted from 0\), column 'v'"),
        ):
            with pytest.raises(
                ValueError, match=f"Input y contains NaN: 1 missing value in 1 of 60 rows.*{place}"
            ):
                make().fit(X, target)
        with pytest.raises(
            ValueError, match=r"Input sample_weight contains NaN: 1 missing .* row 8"
        ):
            make().fit(X, y, with_value(WEIGHT, 8, np.nan))


def test_missing_sizes_are_named():
    chances = with_value(np.full(P, 0.5), 2, np.nan)
    for model, message in (
        (plain(max_features=np.nan), "max_features is NaN"),
        (plain(max_features=np.nan, sampling="determinantal"), "max_features is NaN"),
        (
            plain(max_features=chances),
            "max_features is NaN in 1 of 24 places, the first at position 2",
        ),
        (
            plain(max_features=chances, sampling="bernoulli"),
            "max_features is NaN in 1 of 24 places",
        ),
        (tuned(max_features=np.nan), "max_features is NaN"),
        (
            tuned(max_features=[2, 4, np.nan]),
            "max_features is NaN in 1 of 3 places, the first at position 2",
        ),
        (
            tuned(max_features=np.array([2, np.nan])),
            "max_features is NaN in 1 of 2 places, the first at position 1",
        ),
        (DropoutRegressor(np.nan), "max_features is NaN"),
        (
            DropoutRegressor(chances),
            "max_features is NaN in 1 of 24 places, the first at position 2",
        ),
    ):
        with case(model), pytest.raises(ValueError, match=message):
            model.fit(X, y)


def test_tuned_classes_say_why_they_cannot_stream():
    for make in (tuned, adaptive):
        assert not hasattr(make(), "partial_fit") and not hasattr(make().fit(X, y), "partial_fit")
        with pytest.raises(
            AttributeError, match=r"iterator of blocks.*OLSEnsembleRegressor\.partial_fit"
        ):
            make().partial_fit(X, y)


def test_arguments_of_methods_are_checked():
    model = plain().fit(X, y)
    for coverage in (1.5, "0.9", None, [0.5, 0.9], 0, 1, np.nan, True):
        for ask in (lambda c: model.predict_interval(X[:1], c), model.coef_interval, model.summary):
            with case(coverage), pytest.raises(ValueError, match="coverage"):
                ask(coverage)
    with pytest.raises(ValueError, match="bootstrap"):
        model.predict_interval(X, method="bootstrap")
    for share in (0, -1.0, np.nan, "x"):
        with case(share), pytest.raises(ValueError, match="share"):
            model.members_needed(share)
    for n_members, message in ((0, "n_members"), (2.5, "n_members"), (6, "6.*5")):
        with pytest.raises(ValueError, match=message):
            model.member_coefs(n_members)
    for method in (
        "jackknife+",
        "jackknife",
    ):  # a tiny coverage gives the narrowest interval there is
        tiny, small = (
            model.predict_interval(X[:1], coverage, method)[0] for coverage in (1e-12, 1 / 61)
        )
        np.testing.assert_array_equal(tiny, small)


def test_subsets_of_given_members_are_checked():
    for features, rows, message in (
        ([[0], [1]], [range(9)], "2 feature subsets but 1"),
        ([[24]], None, "24"),
        ([[0, 1], [2]], [[], [1, 2]], "member 0"),
        ([[0.5]], None, "0.5"),
        ([], None, "no members"),
    ):
        with pytest.raises(ValueError, match=message):
            member_coefficients(X, y, features, rows)
    assert member_coefficients(X, y, ([j] for j in range(3)))[0].shape == (3, P)
    masks = np.eye(P, dtype=bool)[:3]
    np.testing.assert_array_equal(
        member_coefficients(X, y, masks)[0], member_coefficients(X, y, [[0], [1], [2]])[0]
    )


def test_constant_target_warns_and_predicts_it():
    with pytest.warns(UserWarning, match=r"y is constant, 4, in all 60 rows"):
        model = plain().fit(X, np.full(60, 4.0))
    np.testing.assert_allclose(model.predict(X), 4.0)
    np.testing.assert_allclose(model.coef_, 0.0, atol=1e-15)


def test_sizes_at_the_interpolation_peak_warn():
    for size, warns in ((16, False), (17, False), (18, True), (20, True), (21, False)):
        with case(size), warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            plain(max_features=size).fit(X[:20], y[:20])
            assert [f"{size} columns and 20 rows" in str(one.message) for one in told] == [
                True
            ] * warns


def test_a_gram_matrix_that_does_not_fit_is_refused_before_it_is_made(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 1e8)
    wide = np.random.default_rng(0).standard_normal((10, 6000))
    with pytest.raises(MemoryError, match=r"6000.*288 MB.*100 MB"):
        plain(max_features=4, solver="gram").fit(wide, wide[:, 0])
    assert plain(max_features=4).fit(wide, wide[:, 0]).solver_ == "member_gram"


def sparse_rows(n, p, density):
    rng = np.random.default_rng(0)
    X = sp.random_array((n, p), density=density, format="csr", rng=rng)
    return X, X[:, [0]].toarray()[:, 0] + rng.standard_normal(n)


def test_choosing_that_does_not_fit_is_refused_before_anything_is_dense(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 16e9)
    wide, targets = sparse_rows(20_000, 50_000, 1e-4)  # 80 GB and more as dense copies
    monkeypatch.setattr(type(wide), "toarray", None)
    monkeypatch.setattr(sp.csc_array, "toarray", None)
    for model, size in ((adaptive(), "96 GB"), (tuned(), "24 GB"), (adaptive(cv=5), "112 GB")):
        with case(model), pytest.raises(MemoryError) as raised:
            model.fit(wide, targets)
        facts = (
            "20000 rows and 50000 columns",
            "sparse X dense",
            size,
            "16 GB",
            "OLSEnsembleRegressor",
        )
        assert all(fact in str(raised.value) for fact in facts), raised.value
        assert not hasattr(model, "coef_")
    with pytest.raises(
        MemoryError, match=r"50000 rows and 20000 columns needs 80 GB.*OLSEnsembleRegressor"
    ):
        adaptive().fit(sp.csr_array((50_000, 20_000)), np.arange(50_000.0))
    with pytest.raises(
        MemoryError, match=r"4000 rows and 60000 columns needs 16\.\d GB.*Use fewer columns"
    ):
        adaptive().fit(
            np.broadcast_to(np.zeros(60_000, np.float32), (4000, 60_000)), np.arange(4000.0)
        )


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_sparse_rows_are_tuned_as_dense_ones():
    """Also where Gram matrices are shared by the paths of uniform members: from rows stored by rows
    they were in column
    order, which the kernels refused."""
    X, y = sparse_rows(400, 200, 0.01)
    for model in (
        adaptive(),
        tuned(),
        tuned(cv=5),
        tuned(sampling="determinantal"),
        tuned(sampling="determinantal", cv=5),
    ):
        for rows in (X, X.tocsc()):
            with case(model, rows.format):
                expected = clone(model).fit(X.toarray(), y)
                np.testing.assert_allclose(
                    model.fit(rows, y).coef_, expected.coef_, rtol=0, atol=1e-9
                )


def test_large_products_of_rows_are_made_of_tiles(monkeypatch):
    wide = np.random.default_rng(0).standard_normal((50, 300))
    every = (
        tuned,
        adaptive,
        AdaptiveOLSEnsembleRegressor,
        TUNED["determinantal"],
        DropoutRegressor,
    )
    expected = [make().fit(wide, wide[:, 0]).coef_ for make in every]
    monkeypatch.setattr(arrays, "LARGE_PRODUCT", 1)
    monkeypatch.setattr(arrays, "TILE", 16)
    symmetric = arrays.row_products(np.asfortranarray(wide))
    np.testing.assert_array_equal(symmetric, symmetric.T)
    np.testing.assert_allclose(symmetric, wide @ wide.T, rtol=0, atol=1e-12)
    for make, coef in zip(every, expected, strict=True):
        with case(make):
            np.testing.assert_allclose(make().fit(wide, wide[:, 0]).coef_, coef, rtol=0, atol=1e-10)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured from /proc")
@pytest.mark.xfail(
    strict=True, reason="tuned classes make sparse X dense; choosing from sparse rows is planned"
)
def test_the_adaptive_class_fits_sparse_rows_in_memory_of_their_size():
    """2000 x 20 000 with 0.1 % entries is 0.5 MB, and 320 MB as one dense copy."""
    code = """
        import resource
        import numpy as np
        import scipy.sparse as sp
        from olsen import AdaptiveOLSEnsembleRegressor

        def now(name):
            lines = open("/proc/self/status").read().splitlines()
            return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))

        rng = np.random.default_rng(0)
        AdaptiveOLSEnsembleRegressor().fit(rng.standard_normal((50, 5)), rng.standard_normal(50))
        X = sp.random_array((2000, 20_000), density=1e-3, format="csr", rng=rng)
        y = X @ rng.standard_normal(20_000) + rng.standard_normal(2000)
        before, limit = now("VmRSS"), now("VmSize") + 10**9  # a fit that needs far more ends at once
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        model = AdaptiveOLSEnsembleRegressor().fit(X, y)
        assert np.isfinite(model.coef_).all()
        assert now("VmHWM") - before < 300e6, now("VmHWM") - before
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


# Tensors


@pytest.fixture
def tensor(monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    torch = pytest.importorskip("torch")
    with sklearn.config_context(array_api_dispatch=True):
        yield torch.tensor


def test_odd_tensors(tensor):
    for length in (2, 59, 61, (60, 1)):
        for make in (plain, tuned, adaptive):
            with case(length), pytest.raises(ValueError, match=r"sample_weight.* 60 rows"):
                make().fit(tensor(X), tensor(y), tensor(np.ones(length)))
    for given, message in (
        ((tensor(X + 1j), tensor(y)), "X.*complex"),
        ((tensor(X), tensor(y + 1j)), "y.*complex"),
        ((tensor(X).to_sparse(), tensor(y)), "to_dense"),
    ):
        with pytest.raises(ValueError, match=message):
            plain().fit(*given)
    model = plain().fit(tensor(X).requires_grad_(), tensor(y))  # no derivatives are left behind
    assert not model.coef_.requires_grad
    copy.deepcopy(model)


# Splits


@pytest.mark.parametrize("make", [tuned, adaptive])
def test_splits_that_are_no_rows_are_refused(make):
    for cv in (
        [(np.arange(20) + 0.5, np.arange(20, 40) + 0.7)],
        [(np.ones(10, bool), np.ones(5, bool))],
        [1, 2],
        [(np.arange(20), np.arange(20, 61))],
        [(np.arange(20), [1000])],
    ):
        with case(cv), pytest.raises(ValueError, match="cv holds"):
            make(cv=cv).fit(X, y)
    for cv in ([], iter([]), [([], [1, 2])], [([1, 2], [])]):
        with case(cv), pytest.raises(ValueError, match="gave no split"):
            make(cv=cv).fit(X, y)
    for cv in (KFold(3), [(np.arange(30), np.arange(30, 40))], 3, None):
        with case(cv), pytest.raises(ValueError, match="GroupKFold"):
            make(cv=cv).fit(X, y, groups=np.arange(N) // 4)
    for cv in (61, 1, "loo"):
        with case(cv), pytest.raises(ValueError, match=f"{cv}"):
            make(cv=cv).fit(X, y)
    for count in (59, 400):
        for weight in (None, np.r_[0.0, WEIGHT[1:]]):
            with pytest.raises(
                ValueError, match=f"groups has {count} entries, but there are 60 rows"
            ):
                make(cv=GroupKFold(4)).fit(X, y, weight, groups=np.arange(count) % 4)


@pytest.mark.parametrize("make", [tuned, partial(tuned, sampling="determinantal"), adaptive])
def test_splitters_may_give_more_splits_than_rows_and_masks_are_rows(make):
    for cv in (
        RepeatedKFold(n_splits=5, n_repeats=13, random_state=0),
        ShuffleSplit(61, random_state=0),
        LeavePOut(2),
    ):
        few = slice(0, 20) if isinstance(cv, LeavePOut) else slice(None)
        splits = list(cv.split(X[few]))
        masks = [tuple(np.isin(np.arange(len(X[few])), rows) for rows in split) for split in splits]
        model, listed, masked = (
            make(cv=how).fit(X[few], y[few]).cv_results_ for how in (cv, splits, masks)
        )
        np.testing.assert_allclose(model["mean_test_score"], listed["mean_test_score"])
        np.testing.assert_allclose(model["mean_test_score"], masked["mean_test_score"])


@pytest.mark.parametrize("make", [tuned, partial(tuned, sampling="determinantal"), adaptive])
def test_predefined_splits_number_the_rows_that_were_given(make):
    fold = np.arange(N) % 4
    dropped = make(cv=PredefinedSplit(fold[1:])).fit(X[1:], y[1:])
    weighted = make(cv=PredefinedSplit(fold)).fit(X, y, np.r_[0.0, WEIGHT[1:]])
    assert np.isclose(weighted.best_score_, dropped.best_score_)


ONE_ROW_TO_TRAIN_ON = [  # splitter, rows, groups, the fold that is named
    (TimeSeriesSplit(9), 10, None, "fold 1 of 9"),
    (TimeSeriesSplit(19), 20, None, "fold 1 of 19"),
    (LeaveOneGroupOut(), 4, [0, 1, 1, 1], "fold 2 of 2"),
    (2, 2, None, "fold 1 of 2"),
    (2, 3, None, "fold 1 of 2"),
    ([(np.arange(4), [4, 5]), ([0], [4, 5])], 6, None, "fold 2 of 2"),
]


@pytest.mark.parametrize("make", TUNED.values(), ids=TUNED)
def test_an_intercept_needs_two_rows_to_train_on_in_every_fold(make):
    for cv, rows, groups, fold in ONE_ROW_TO_TRAIN_ON:
        model = make(cv=cv)
        given = {} if groups is None else {"groups": groups}
        with case(cv, rows):
            with pytest.raises(ValueError, match=f"{fold} .*trains on 1 row,.*fit_intercept=False"):
                model.fit(X[:rows], y[:rows], **given)
            assert not hasattr(model, "coef_")
            without = model.set_params(fit_intercept=False).fit(X[:rows], y[:rows], **given)
            assert (
                -np.inf < without.best_score_ < 0
                and np.isfinite(without.predict_interval(X[:5], 0.3)).all()
            )


def test_rows_of_weight_zero_are_none_to_train_on():
    weight = np.r_[np.ones(1), np.zeros(3), np.ones(6)]
    folds = [(np.arange(4), np.arange(4, 10)), (np.arange(4, 10), np.arange(4))]
    few = (X[:3], y[:3])
    for name, make in TUNED.items():
        with case(name):
            with pytest.raises(ValueError, match=r"fold 1 of 2 .*trains on 1 row,"):
                make(cv=folds).fit(X[:10], y[:10], weight)
            with pytest.raises(ValueError, match="trains on 1 row,"):
                make(cv=2).fit(lambda: iter([few]), None)


def test_a_fold_that_trains_on_equal_rows_predicts_their_mean():
    """No column varies in it, whatever rounding leaves of the rows about their mean."""
    rng = np.random.default_rng(5)
    for equal, columns, name in itertools.product((2, 3, 5, 6, 7), (3, 12, 40), TUNED):
        rows, targets = (
            7 * rng.standard_normal((equal + 6, columns)) + 100,
            rng.standard_normal(equal + 6),
        )
        rows[:equal] = rows[0]
        alike, others = np.arange(equal), np.arange(equal, equal + 6)
        model = TUNED[name](cv=[(alike, others), (others, alike)]).fit(rows, targets)
        with case(equal, columns, name):
            np.testing.assert_allclose(
                model.cv_prediction_[others], targets[:equal].mean(), rtol=1e-8, atol=1e-12
            )


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("make", TUNED.values(), ids=TUNED)
def test_very_few_rows_have_an_error_and_intervals(make, fit_intercept):
    """By default, and left out one by one by a splitter."""
    for rows in (2, 3, 4, 5):
        for cv in (None, LeaveOneOut()) if rows > 2 else (None,):
            model = make(cv=cv, fit_intercept=fit_intercept)
            with case(rows, cv):
                model.fit(X[:rows], y[:rows])
                assert -np.inf < model.best_score_ < 0
                lower, upper = model.predict_interval(X[:5], 0.3).T
                assert np.isfinite(lower).all() and np.all(lower <= upper)
                assert np.all(np.diff(model.predict_interval(X[:5], 0.3, "normal")) > 0)
    alone = make().fit(X[:2], y[:2])
    assert -alone.best_score_ >= (y[0] - y[1]) ** 2 * (1 - 1e-9)  # each predicts the other


# What looks odd and is not


@pytest.mark.filterwarnings("error::RuntimeWarning", "ignore::UserWarning")
def test_stacking_and_tuning_of_members_with_few_rows():
    for max_samples in (2, 3, 5):
        with case(max_samples):
            model = plain(mixing="stacking", max_samples=max_samples).fit(X, y)
            assert np.isfinite(model.coef_).all() and np.isclose(model.weights_.sum(), 1)
            model = tuned(max_samples=max_samples).fit(X, y)
            assert np.isfinite(model.coef_).all() and np.isfinite(model.best_score_)


def test_single_precision_whose_coefficients_only_double_holds(tensor):
    """X and y are ordinary numbers; their ratio, or a product with new rows, leaves the range of
    float32.
    """
    dask = pytest.importorskip("dask.array")
    for x_unit, y_unit in ((1e-20, 1e20), (1e30, 1e-20), (1e20, 1e40), (1e-10, 1e-45)):
        single, targets = (X * x_unit).astype(np.float32), y * y_unit
        double = single.astype(np.float64)
        for make in (
            (plain, tuned, adaptive, DropoutRegressor) if x_unit in (1e-20, 1e30) else (plain,)
        ):
            with case(make, x_unit, y_unit), warnings.catch_warnings():
                warnings.simplefilter("error")
                model, expected = make().fit(single, targets), make().fit(double, targets)
                tol = {"rtol": 1e-6, "atol": 1e-6 * np.abs(expected.predict(double)).max()}
                np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-6)
                np.testing.assert_allclose(model.predict(single), expected.predict(double), **tol)
                assert model.score(single, targets) == pytest.approx(
                    expected.score(double, targets), abs=1e-6
                )
                if make is DropoutRegressor:
                    continue
                np.testing.assert_allclose(model.coef_std(), expected.coef_std(), rtol=1e-5)
                interval = model.predict_interval(single[:3])
                np.testing.assert_allclose(interval, expected.predict_interval(double[:3]), **tol)
                np.testing.assert_allclose(
                    model.predict(dask.from_array(single)).compute(),
                    expected.predict(double),
                    **tol,
                )
        blocks = plain().fit(lambda rows=(single, targets): [rows], None)
        np.testing.assert_allclose(
            blocks.predict(single), plain().fit(double, targets).predict(double), **tol
        )
        elsewhere, there = plain().fit(tensor(single), tensor(targets)), tensor(single)
        np.testing.assert_allclose(
            elsewhere.predict(there), plain().fit(double, targets).predict(double), **tol
        )
    model = plain().fit(X.astype(np.float32), 1e20 * y)
    assert model.coef_.dtype == model.predict(X.astype(np.float32)).dtype == np.float32
    far = (1e30 * X).astype(np.float32)
    np.testing.assert_allclose(model.predict(far), model.predict(far.astype(np.float64)), rtol=1e-5)
    near = plain(fit_intercept=False).fit(X.astype(np.float32), 1e-30 * y)
    tiny = (1e-15 * X).astype(np.float32)
    np.testing.assert_allclose(near.predict(tiny), near.predict(tiny.astype(np.float64)), rtol=1e-5)


def test_odd_containers():
    pd = pytest.importorskip("pandas")
    expected = plain().fit(X, y).coef_
    np.testing.assert_array_equal(
        plain().fit(np.ma.array(X), y).coef_, expected
    )  # nothing is masked
    np.testing.assert_array_equal(plain().fit(X, y.astype(object)).coef_, expected)
    np.testing.assert_array_equal(plain().fit(X, [str(value) for value in y]).coef_, expected)
    dense = pd.DataFrame(np.where(X > 0, X, 0)).add_prefix("c")
    sparse = plain().fit(dense.astype(pd.SparseDtype(float, 0)), y)
    np.testing.assert_allclose(sparse.coef_, plain().fit(dense, y).coef_)


def test_rows_that_repeat_by_rounding_are_no_alarm(seed):
    rng = np.random.default_rng(seed)
    one, few = rng.standard_normal((300, 1)), rng.standard_normal((300, 2))
    noise = rng.standard_normal(300)
    tables = {
        "one": one.round(1),
        "heaped": 500 * one.round(),
        "rounded": few.round(),
        "grid": 3 * few.round(),
    }
    for name, X in tables.items():
        y = X[:, 0] + X.std() * noise
        with case(name), warnings.catch_warnings():
            warnings.simplefilter("error")
            for make in (OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor):
                make(n_estimators=20, random_state=seed).fit(X, y)
                make(n_estimators=20, random_state=seed).fit(X, (10 * y / X.std()).round())
    twice = np.repeat(np.arange(300), 2)
    for X, y in ((few[twice], rng.standard_normal(600)), (one[twice], noise[twice])):
        with pytest.warns(RepeatedRowsWarning, match="300 of 600") as caught:
            OLSEnsembleRegressorCV(20, random_state=seed).fit(X, y)
        found = next(w.message for w in caught if isinstance(w.message, RepeatedRowsWarning))
        assert (found.repeated, found.n_rows) == (300, 600)
