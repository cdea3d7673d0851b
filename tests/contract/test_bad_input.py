"""Bad input: the error names the user's numbers, and a fitted estimator stays usable. Unusual input
that is fitted all the same.
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
from numpy.testing import assert_allclose, assert_array_equal
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
    defaults = {"n_estimators": 5, "max_features": 0.3, "random_state": 0}
    return OLSEnsembleRegressor(**(defaults | settings))


def tuned(**settings):
    return OLSEnsembleRegressorCV(**{"n_estimators": 20, "random_state": 0, **settings})


def adaptive(**settings):
    return AdaptiveOLSEnsembleRegressor(**{"n_estimators": 20, "random_state": 0, **settings})


EVERY = (plain, tuned, adaptive, DropoutRegressor)
TUNED = {  # every way of tuning, with the default number of members
    "uniform": OLSEnsembleRegressorCV,
    "determinantal": partial(OLSEnsembleRegressorCV, sampling="determinantal"),
    "adaptive": AdaptiveOLSEnsembleRegressor,
}


def with_value(array, position, value):
    """Copy of an array with one other value."""
    changed = array.astype(object if isinstance(value, str) or value is None else array.dtype)
    changed[position] = value
    return changed


def assert_refuses(message, *calls):
    for call in calls:
        with pytest.raises((ValueError, TypeError), match=message):
            call()


REFUSED_DATA = {  # message -> (X, y, weights)
    "X contains NaN": (with_value(X, (3, 4), np.nan), y, None),
    "X contains infinity": (with_value(X, (3, 4), np.inf), y, None),
    "clay": (with_value(X, (3, 4), "clay"), y, None),
    "y contains NaN": (X, with_value(y, 2, np.nan), None),
    "y contains infinity": (X, with_value(y, 2, np.inf), None),
    "Input y contains NaN": (X, with_value(y, 2, None), None),
    "'clay'": (X, with_value(y, 2, "clay"), None),
    "times": (X, np.datetime64("2020", "D") + np.arange(N), None),
    "y.*toarray": (X, sp.csr_array(y[:, None]), None),
    "X is a masked": (np.ma.masked_greater(X, 2), y, None),
    "y is a masked array with 30": (X, np.ma.masked_greater(y, np.median(y)), None),
    r"1 sample.*minimum of 2": (X[:1], y[:1], None),
    "0 sample": (X[:0], y[:0], None),
    r"0 feature.*minimum of 1": (X[:, :0], y, None),
    "60, 59": (X, y[:-1], None),
    "0 of 60|non-zero": (X, y, 0 * WEIGHT),
    "1 of 60": (X, y, np.r_[1.0, 0 * WEIGHT[1:]]),
    "[Nn]egative.*sample_weight": (X, y, np.r_[-1.0, WEIGHT[1:]]),
    "sample_weight.*9": (X, y, WEIGHT[:9]),
    "sample_weight.*1e-300": (X, y, np.geomspace(1e-300, 1e300, N)),  # six hundred decades
}
REFUSED_SIZES = {  # message -> parameters
    r"24.*1\.2": {"max_features": np.full(24, 1.2)},
    r"-0\.1 for column 0": {"max_features": np.r_[-0.1, np.ones(23)]},
    "max_features|column": {"max_features": np.zeros(24)},
    r"\(5,\).*24": {"max_features": np.ones(5)},
    "max_features=0.*24": {"max_features": 0},
    "max_features=25.*24": {"max_features": 25},
    r"max_features=1\.5": {"max_features": 1.5},
    "max_samples=61.*60": {"max_samples": 61},
    "determinantal": {"n_estimators": np.inf},
}


@pytest.mark.filterwarnings("ignore")
def test_refusals_leave_the_fit_alone():
    model = plain().fit(X, y)
    predictions = model.predict(X)
    defaults = model.get_params()
    for message, data in REFUSED_DATA.items():
        with case(message):
            fits = [estimator.fit for estimator in (model, tuned(), adaptive())]
            assert_refuses(message, *(partial(fit, *data) for fit in fits))
            assert_array_equal(model.predict(X), predictions)
    for message, parameters in REFUSED_SIZES.items():
        with case(message):
            assert_refuses(message, partial(model.set_params(**parameters).fit, X, y))
            assert_array_equal(model.set_params(**defaults).predict(X), predictions)
    assert_refuses("max_features is an empty list", partial(tuned(max_features=[]).fit, X, y))


def test_meaningless_parameters_are_named():
    parameters = {
        "fit_intercept": (None, "yes"),
        "keep_rows": (None, 1),
        "n_jobs": ("2", 1.5, 0),
        "verbose": (-1, "x"),
        "n_estimators": (0, 2.5),
        "random_state": (-3,),
    }
    of_sizes = {
        "scale": (None, np.inf, np.nan, "x", True),
        "sampling": (None, "x"),
        "design": (None, "x"),
        "max_samples": (0, 1.5),
    }
    meaningless = {
        OLSEnsembleRegressor: (
            parameters | of_sizes | {"mixing": ("median", None), "solver": ("x",)}
        ),
        OLSEnsembleRegressorCV: parameters | of_sizes | {"cv": ("x", 1)},
        AdaptiveOLSEnsembleRegressor: (
            parameters | {"schemes": ("ridge", [], ["x"], 3), "cv": ("gcv", 1)}
        ),
        DropoutRegressor: {
            "rescale": (None,),
            "fit_intercept": (0,),
            "verbose": (-1,),
            "tol": (-1,),
            "max_iter": (1.5,),
        },
    }
    for cls, values_by_name in meaningless.items():
        for name, values in values_by_name.items():
            for value in values:
                with case(cls, value):
                    assert_refuses(name, partial(cls(**{name: value}).fit, X, y))


def test_tables_are_checked():
    pd = pytest.importorskip("pandas")
    pl = pytest.importorskip("polars")
    model = plain().fit(X, y)
    frame = pd.DataFrame(X[:, :2], columns=["a", "b"])
    by_name = plain().fit(frame, y)
    for message, function, table in (
        ("23.*24", model.predict, X[:, :-1]),
        ("z", by_name.predict, frame.rename(columns={"b": "z"})),
        ("rows.npy", model.predict, "rows.npy"),
        ("masked", model.predict, np.ma.masked_greater(X, 2)),
    ):
        assert_refuses(message, partial(function, table))
    for message, table in (
        (r"2 of 4.*'soil', 'region'", frame.assign(soil="clay", region="north")),
        ("several columns named 'a'", pd.DataFrame(X[:, :3], columns=list("aba"))),
        ("collect", pl.DataFrame(X).lazy()),
    ):
        assert_refuses(message, partial(plain().fit, table, y))
    text = frame.assign(soil="clay")
    assert_refuses("'soil'", partial(member_coefficients, text, y, [[0]]))


def assert_times_refused(call, *facts):
    """The message names the values that are times, and the way out."""
    with pytest.raises(ValueError) as raised:
        call()
    for fact in (*facts, "dates or times", "reference date", "olsen.TableEncoder"):
        assert fact in str(raised.value)


DAYS = np.datetime64("2020-01-01") + np.arange(N)
TIME_TARGETS = {  # function of pandas, polars and pyarrow -> a target of times
    "array": lambda pd, pl, pa: DAYS,
    "list": lambda pd, pl, pa: list(DAYS),
    "dates": lambda pd, pl, pa: DAYS.tolist(),
    "durations": lambda pd, pl, pa: DAYS - DAYS[0],
    "Series": lambda pd, pl, pa: pd.Series(DAYS, name="when"),
    "zone": lambda pd, pl, pa: pd.Series(DAYS, name="when").dt.tz_localize("UTC"),
    "DataFrame": lambda pd, pl, pa: pd.DataFrame({"when": DAYS}),
    "objects": lambda pd, pl, pa: pd.Series(DAYS, name="when").astype(object),
    "polars": lambda pd, pl, pa: pl.Series("when", DAYS),
    "polars frame": lambda pd, pl, pa: pl.DataFrame({"when": DAYS}),
    "Arrow": lambda pd, pl, pa: pa.array(DAYS),
    "Arrow column": lambda pd, pl, pa: pa.chunked_array([pa.array(DAYS)]),
    "Arrow table": lambda pd, pl, pa: pa.table({"when": DAYS}),
}
COLUMNS = {"a": X[:, 0], "when": DAYS}
TIME_TABLES = {
    "array": lambda pd, pl, pa: np.stack([DAYS, DAYS], axis=1),
    "durations": lambda pd, pl, pa: np.stack([DAYS - DAYS[0]] * 2, axis=1),
    "list": lambda pd, pl, pa: [[1.0, day] for day in DAYS],
    "pandas": lambda pd, pl, pa: pd.DataFrame(COLUMNS),
    "polars": lambda pd, pl, pa: pl.DataFrame(COLUMNS),
    "Arrow": lambda pd, pl, pa: pa.table(COLUMNS),
    "RecordBatch": lambda pd, pl, pa: pa.RecordBatch.from_pydict(COLUMNS),
    "objects": lambda pd, pl, pa: pd.DataFrame(COLUMNS).astype({"when": object}),
}


@pytest.fixture
def libraries():
    return [pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow")]


@pytest.mark.parametrize("make", EVERY)
def test_times_are_not_numbers(libraries, make):
    model = make().fit(X[:, :2], y)
    for name, make_target in TIME_TARGETS.items():
        target = make_target(*libraries)
        fact = "'when'" if hasattr(target, "name") or hasattr(target, "columns") else "y "
        with case("target", name):
            assert_times_refused(partial(make().fit, X, target), "y", fact)
            if make is plain:
                blocks = partial(make().fit, lambda target=target: [(X, target)], None)
                assert_times_refused(blocks, "y of block 0")
    for name, make_table in TIME_TABLES.items():
        table = make_table(*libraries)
        fact = "column 'when'" if hasattr(table, "columns") else "column "
        with case("table", name):
            assert_times_refused(partial(make().fit, table, y), "X", fact)
            assert_times_refused(partial(model.predict, table), "X", fact)
            if make is plain:
                blocks = partial(make().fit, lambda table=table: [(table, y)], None)
                assert_times_refused(blocks, "X of block 0")


@pytest.mark.parametrize("make", EVERY[:3])
def test_times_in_files_and_in_dask_are_not_numbers(libraries, make, tmp_path):
    pd, _, pa = libraries
    pq = pytest.importorskip("pyarrow.parquet")
    da = pytest.importorskip("dask.array")
    dd = pytest.importorskip("dask.dataframe")
    table = {**COLUMNS, "b": y}
    parquet = tmp_path / "rows.parquet"
    pq.write_table(pa.table(table), parquet)
    np.save(tmp_path / "days.npy", DAYS)
    np.save(tmp_path / "X.npy", X)
    frame = dd.from_pandas(pd.DataFrame(table), npartitions=2)
    lazy_days = da.from_array(np.stack([DAYS, DAYS], axis=1), chunks=20)
    for fact, *data in (
        ("column 'when'", parquet, "b"),
        ("column 'when'", parquet, "when"),
        ("y of block 0", tmp_path / "X.npy", tmp_path / "days.npy"),
        ("column 'when'", frame, "b"),
        ("column 'when'", frame[["a", "b"]], frame["when"]),
        ("y ", da.from_array(X, chunks=20), da.from_array(DAYS, chunks=20)),
        ("X ", lazy_days, y),
    ):
        with case(fact, data):
            assert_times_refused(partial(make().fit, *data), fact)
    assert_times_refused(partial(make().fit(X[:, :2], y).predict, lazy_days), "column 0")
    by_name = make().fit(frame[["a", "b"]], y)
    assert_times_refused(partial(by_name.predict, frame[["a", "b"]].astype("M8[s]")), "'a'")


@pytest.mark.parametrize("make", EVERY)
def test_missing_values_are_counted_and_the_first_is_named(make):
    pd = pytest.importorskip("pandas")
    pl = pytest.importorskip("polars")
    missing = with_value(with_value(X, (7, 2), np.nan), (5, slice(3, 5)), np.nan)
    frame = pd.DataFrame(missing, columns=[f"c{j}" for j in range(P)])
    message = (
        r"Input X contains NaN: 3 missing values in 2 of 60 rows, .* row 5 \(counted from 0\),"
        r" column {}\. .*Imputer"
    )
    model = make().fit(X, y)
    by_name = make().fit(frame.fillna(0.0), y)
    for table in (missing, missing.astype(object), sp.csr_array(missing), sp.csc_array(missing)):
        assert_refuses(
            message.format("3"), partial(make().fit, table, y), partial(model.predict, table)
        )
    for table in (frame, pl.from_pandas(frame)):
        calls = partial(make().fit, table, y), partial(by_name.predict, table)
        assert_refuses(message.format("'c3'"), *calls)
    infinite = with_value(X, (9, 1), -np.inf)
    calls = partial(make().fit, infinite, y), partial(model.predict, infinite)
    assert_refuses(r"X contains infinity: 1 infinite value in 1 .* row 9 .* column 1\.", *calls)
    targets = pd.DataFrame({"u": y, "v": with_value(y, 2, np.nan)})
    message = "Input y contains NaN: 1 missing value in 1 of 60 rows.*row 2"
    assert_refuses(message, partial(make().fit, X, targets["v"]))
    message += r" \(counted from 0\), column 'v'"
    assert_refuses(message, partial(make().fit, X, targets))
    message = r"Input sample_weight contains NaN: 1 missing .* row 8"
    assert_refuses(message, partial(make().fit, X, y, with_value(WEIGHT, 8, np.nan)))


def test_missing_sizes_are_named():
    probabilities = with_value(np.full(P, 0.5), 2, np.nan)
    of_24 = "max_features is NaN in 1 of 24 places, the first at position 2"
    of_3 = "max_features is NaN in 1 of 3 places, the first at position 2"
    of_2 = "max_features is NaN in 1 of 2 places, the first at position 1"
    for message, model in (
        ("max_features is NaN", plain(max_features=np.nan)),
        ("max_features is NaN", plain(max_features=np.nan, sampling="determinantal")),
        ("max_features is NaN", tuned(max_features=np.nan)),
        ("max_features is NaN", DropoutRegressor(np.nan)),
        (of_24, plain(max_features=probabilities)),
        (of_24, plain(max_features=probabilities, sampling="bernoulli")),
        (of_24, DropoutRegressor(probabilities)),
        (of_3, tuned(max_features=[2, 4, np.nan])),
        (of_2, tuned(max_features=np.array([2, np.nan]))),
    ):
        with case(model):
            assert_refuses(message, partial(model.fit, X, y))


@pytest.mark.parametrize("make", [tuned, adaptive])
def test_tuned_classes_say_why_they_cannot_stream(make):
    message = r"iterator of blocks.*OLSEnsembleRegressor\.partial_fit"
    for model in (make(), make().fit(X, y)):
        assert not hasattr(model, "partial_fit")
        with pytest.raises(AttributeError, match=message):
            model.partial_fit(X, y)


def test_arguments_of_methods_are_checked():
    model = plain().fit(X, y)
    new = X[:1]
    calls = [partial(model.predict_interval, new), model.coef_interval, model.summary]
    for coverage in (1.5, "0.9", None, [0.5, 1.0], 0, 1, np.nan, True):
        with case(coverage):
            assert_refuses("coverage", *(partial(call, coverage) for call in calls))
    assert_refuses("coverage", *(partial(call, [0.5, 0.9]) for call in calls[1:]))
    assert_refuses("bootstrap", partial(model.predict_interval, new, method="bootstrap"))
    for share in (0, -1.0, np.nan, "x"):
        assert_refuses("share", partial(model.members_needed, share))
    for n_members, message in ((0, "n_members"), (2.5, "n_members"), (6, "6.*5")):
        assert_refuses(message, partial(model.member_coefs, n_members))
    for method in ("jackknife+", "jackknife"):
        tiny = model.predict_interval(new, 1e-12, method)  # the narrowest interval there is
        assert_array_equal(tiny, model.predict_interval(new, 1 / 61, method))


def test_subsets_of_given_members_are_checked():
    for message, subsets in (
        ("2 feature subsets but 1", ([[0], [1]], [range(9)])),
        ("24", ([[24]],)),
        ("member 0", ([[0, 1], [2]], [[], [1, 2]])),
        ("0.5", ([[0.5]],)),
        ("no members", ([],)),
        ("member", ([[[0, 1]]],)),
        ("member", ([["a"]],)),
        ("member", ([[True, False]],)),
    ):
        with case(subsets):
            assert_refuses(message, partial(member_coefficients, X, y, *subsets))
    expected = member_coefficients(X, y, [[0], [1], [2]])[0]
    for members in (([j] for j in range(3)), np.eye(P, dtype=bool)[:3]):
        assert_array_equal(member_coefficients(X, y, members)[0], expected)


def test_a_constant_target_is_predicted_with_a_warning():
    for cls in (*TUNED.values(), OLSEnsembleRegressor, DropoutRegressor):
        with case(cls):
            with pytest.warns(UserWarning, match=r"y is constant, 4, in all 60 rows") as caught:
                model = cls().fit(X, np.full(60, 4.0))
            assert {warning.filename for warning in caught} == {__file__}, "the line of the user"
            assert_allclose(model.predict(X), 4.0)


@pytest.mark.parametrize(
    ("size", "warns"), [(16, False), (17, False), (18, True), (20, True), (21, False)]
)
def test_sizes_at_the_interpolation_peak_warn(size, warns):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plain(max_features=size).fit(X[:20], y[:20])
    assert [f"{size} columns and 20 rows" in str(warning.message) for warning in caught] == (
        [True] * warns
    )


def test_advice_near_the_peak_can_be_followed():
    """No number of columns lies below the peak for three rows and an intercept: none is advised."""
    with pytest.warns(UserWarning, match=r"1 column and 3 rows.*Use at least 4 columns"):
        plain(max_features=1).fit(X[:3], y[:3])
    with pytest.warns(UserWarning, match=r"Use at most 5 columns .*, or at least 9 columns"):
        plain(max_features=7).fit(X[:8], y[:8])


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


def test_choosing_that_does_not_fit_is_refused_before_the_work_starts(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 16e9)
    wide, targets = sparse_rows(20_000, 50_000, 1e-4)  # 24 GB as dense copies
    monkeypatch.setattr(type(wide), "toarray", None)
    monkeypatch.setattr(sp.csc_array, "toarray", None)
    model = tuned()
    with pytest.raises(MemoryError) as raised:
        model.fit(wide, targets)
    shape = "20000 rows and 50000 columns"
    for fact in (shape, "sparse X dense", "24 GB", "16 GB", "OLSEnsembleRegressor"):
        assert fact in str(raised.value)
    assert not hasattr(model, "coef_")
    message = r"Drawing.* 20000 dense rows and 50000 columns needs 24 GB.*np\.inf"
    with pytest.raises(MemoryError, match=message):
        adaptive(n_estimators=10).fit(wide, targets)
    monkeypatch.setattr(memory, "available_bytes", lambda: 1e8)  # vectors of the columns
    for model in (adaptive(), adaptive(cv=5)):
        message = r"20000 rows and 50000 columns.*needs \d+ MB, but 100 MB.*Use fewer columns"
        with case(model), pytest.raises(MemoryError, match=message):
            model.fit(wide, targets)
    dense = np.broadcast_to(np.zeros(60_000, np.float32), (4000, 60_000))
    message = r"4000 rows and 60000 columns.*needs 3\.\d+ GB.*Use fewer columns"
    with pytest.raises(MemoryError, match=message):
        adaptive().fit(dense, np.arange(4000.0))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("cv", [None, 5])
@pytest.mark.parametrize("cls", TUNED.values(), ids=TUNED)
def test_sparse_rows_are_tuned_as_dense_ones(cls, cv):
    """Rows stored by rows and by columns, also where paths of members share Gram matrices."""
    X, y = sparse_rows(400, 200, 0.01)
    model = cls(cv=cv, random_state=0)
    if cls is not TUNED["determinantal"]:
        model.set_params(n_estimators=20)
    expected = clone(model).fit(X.toarray(), y)
    for rows in (X, X.tocsc()):
        coef = model.fit(rows, y).coef_
        assert_allclose(coef, expected.coef_, rtol=0, atol=1e-9)


def test_large_products_of_rows_are_made_of_tiles(monkeypatch):
    wide = np.random.default_rng(0).standard_normal((50, 300))
    estimators = (tuned, adaptive, *list(TUNED.values())[1:], DropoutRegressor)
    expected = [make().fit(wide, wide[:, 0]).coef_ for make in estimators]
    monkeypatch.setattr(arrays, "LARGE_PRODUCT", 1)
    monkeypatch.setattr(arrays, "TILE", 16)
    products = arrays.row_products(np.asfortranarray(wide))
    assert_array_equal(products, products.T)
    assert_allclose(products, wide @ wide.T, rtol=0, atol=1e-12)
    for make, coef in zip(estimators, expected, strict=True):
        with case(make):
            tiled = make().fit(wide, wide[:, 0]).coef_
            assert_allclose(tiled, coef, rtol=0, atol=1e-10)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured from /proc")
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


def test_tensors_that_cannot_be_fitted_are_refused(tensor):
    for length, make in itertools.product((2, 59, 61, (60, 1)), (plain, tuned, adaptive)):
        weights = tensor(np.ones(length))
        message = r"sample_weight.* 60 rows"
        assert_refuses(message, partial(make().fit, tensor(X), tensor(y), weights))
    for message, data in (
        ("X.*complex", (tensor(X + 1j), tensor(y))),
        ("y.*complex", (tensor(X), tensor(y + 1j))),
        ("to_dense", (tensor(X).to_sparse(), tensor(y))),
    ):
        assert_refuses(message, partial(plain().fit, *data))


def test_tensors_with_gradients_leave_no_derivatives(tensor):
    model = plain().fit(tensor(X).requires_grad_(), tensor(y))
    assert not model.coef_.requires_grad
    copy.deepcopy(model)


# Splits


@pytest.mark.parametrize("make", [tuned, adaptive])
def test_splits_that_are_not_rows_are_refused(make):
    rows = np.arange(20)
    for message, cvs in {
        "cv holds": (
            [(rows + 0.5, rows + 20.7)],
            [(np.ones(10, bool), np.ones(5, bool))],
            [1, 2],
            [(rows, np.arange(20, 61))],
            [(rows, [1000])],
        ),
        "gave no split": ([], iter([]), [([], [1, 2])], [([1, 2], [])]),
        "61": (61,),
        "1": (1,),
        "loo": ("loo",),
    }.items():
        for cv in cvs:
            with case(cv):
                assert_refuses(message, partial(make(cv=cv).fit, X, y))
    for cv in (KFold(3), [(rows, rows + 20)], 3, None):
        with case(cv):
            assert_refuses("GroupKFold", partial(make(cv=cv).fit, X, y, groups=np.arange(N) // 4))
    for n_groups, weights in itertools.product((59, 400), (None, np.r_[0.0, WEIGHT[1:]])):
        message = f"groups has {n_groups} entries, but there are 60 rows"
        fit = partial(make(cv=GroupKFold(4)).fit, X, y, weights)
        assert_refuses(message, partial(fit, groups=np.arange(n_groups) % 4))


@pytest.mark.parametrize("cls", TUNED.values(), ids=TUNED)
@pytest.mark.parametrize(
    ("cv", "n_rows"),
    [
        (RepeatedKFold(n_splits=5, n_repeats=13, random_state=0), N),
        (ShuffleSplit(61, random_state=0), N),
        (LeavePOut(2), 20),
    ],
    ids=["repeated", "shuffled", "pairs"],
)
def test_splitters_may_give_more_splits_than_rows_and_masks_are_rows(cls, cv, n_rows):
    splits = list(cv.split(X[:n_rows]))
    masks = [tuple(np.isin(np.arange(n_rows), rows) for rows in split) for split in splits]
    expected = None
    for folds in (cv, splits, masks):
        model = cls(cv=folds, random_state=0).fit(X[:n_rows], y[:n_rows])
        scores = model.cv_results_["mean_test_score"]
        expected = scores if expected is None else expected
        assert_allclose(scores, expected)


@pytest.mark.parametrize("cls", TUNED.values(), ids=TUNED)
def test_predefined_splits_count_rows_of_weight_zero(cls):
    fold = np.arange(N) % 4
    dropped = cls(cv=PredefinedSplit(fold[1:]), random_state=0).fit(X[1:], y[1:])
    weights = np.r_[0.0, WEIGHT[1:]]
    weighted = cls(cv=PredefinedSplit(fold), random_state=0).fit(X, y, weights)
    assert np.isclose(weighted.best_score_, dropped.best_score_)


ONE_ROW_TO_TRAIN_ON = [  # splitter, rows, groups, the fold that is named
    (TimeSeriesSplit(9), 10, None, "fold 1 of 9"),
    (TimeSeriesSplit(19), 20, None, "fold 1 of 19"),
    (LeaveOneGroupOut(), 4, [0, 1, 1, 1], "fold 2 of 2"),
    (2, 2, None, "fold 1 of 2"),
    (2, 3, None, "fold 1 of 2"),
    ([(np.arange(4), [4, 5]), ([0], [4, 5])], 6, None, "fold 2 of 2"),
]


@pytest.mark.parametrize("cls", TUNED.values(), ids=TUNED)
def test_an_intercept_needs_two_rows_to_train_on_in_every_fold(cls):
    for cv, n_rows, groups, fold in ONE_ROW_TO_TRAIN_ON:
        model = cls(cv=cv)
        fit_params = {} if groups is None else {"groups": groups}
        fit = partial(model.fit, X[:n_rows], y[:n_rows], **fit_params)
        with case(cv, n_rows):
            assert_refuses(f"{fold} .*trains on 1 row,.*fit_intercept=False", fit)
            assert not hasattr(model, "coef_")
            model.set_params(fit_intercept=False)
            assert -np.inf < fit().best_score_ < 0
            assert np.isfinite(model.predict_interval(X[:5], 0.3)).all()


@pytest.mark.parametrize("cls", TUNED.values(), ids=TUNED)
def test_rows_of_weight_zero_do_not_train(cls):
    weights = np.r_[np.ones(1), np.zeros(3), np.ones(6)]
    folds = [(np.arange(4), np.arange(4, 10)), (np.arange(4, 10), np.arange(4))]
    fit = partial(cls(cv=folds).fit, X[:10], y[:10], weights)
    assert_refuses(r"fold 1 of 2 .*trains on 1 row,", fit)
    blocks = partial(cls(cv=2).fit, lambda: iter([(X[:3], y[:3])]), None)
    assert_refuses("trains on 1 row,", blocks)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("cls", TUNED.values(), ids=TUNED)
def test_a_fold_that_trains_on_equal_rows_predicts_their_mean(cls):
    """No column varies in it, whatever rounding leaves of the centred rows."""
    rng = np.random.default_rng(5)
    for n_equal, n_columns in itertools.product((2, 3, 5, 6, 7), (3, 12, 40)):
        rows = 7 * rng.standard_normal((n_equal + 6, n_columns)) + 100
        targets = rng.standard_normal(n_equal + 6)
        rows[:n_equal] = rows[0]
        equal, different = np.split(np.arange(n_equal + 6), [n_equal])
        model = cls(cv=[(equal, different), (different, equal)]).fit(rows, targets)
        with case(n_equal, n_columns):
            predicted = model.cv_prediction_[different]
            assert_allclose(predicted, targets[equal].mean(), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("cls", TUNED.values(), ids=TUNED)
def test_very_few_rows_have_an_error_and_intervals(cls, fit_intercept):
    """The default folds, and a splitter that holds out rows one by one."""
    for n_rows, cv in ((2, None), *itertools.product((3, 4, 5), (None, LeaveOneOut()))):
        with case(n_rows, cv):
            model = cls(cv=cv, fit_intercept=fit_intercept).fit(X[:n_rows], y[:n_rows])
            assert -np.inf < model.best_score_ < 0
            lower, upper = model.predict_interval(X[:5], 0.3).T
            assert np.isfinite(lower).all() and np.all(lower <= upper)
            assert np.all(np.diff(model.predict_interval(X[:5], 0.3, "normal")) > 0)
    model = cls().fit(X[:2], y[:2])
    assert_allclose(model.cv_prediction_, y[1::-1])  # each row predicts the other
    assert -model.best_score_ >= (y[0] - y[1]) ** 2 * (1 - 1e-9)


# Unusual input that is fitted


@pytest.mark.filterwarnings("error::RuntimeWarning", "ignore::UserWarning")
@pytest.mark.parametrize("max_samples", [2, 3, 5])
def test_stacking_and_tuning_of_members_with_few_rows(max_samples):
    model = plain(mixing="stacking", max_samples=max_samples).fit(X, y)
    assert np.isfinite(model.coef_).all() and np.isclose(model.weights_.sum(), 1)
    model = tuned(max_samples=max_samples).fit(X, y)
    assert np.isfinite(model.coef_).all() and np.isfinite(model.best_score_)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make", EVERY)
@pytest.mark.parametrize(
    ("x_unit", "y_unit"), [(1e-20, 1e20), (1e30, 1e-20), (1e20, 1e40), (1e-10, 1e-45)]
)
def test_single_precision_of_extreme_ratios(make, x_unit, y_unit, tensor):
    """X and y are ordinary numbers, but coefficients, or their products with new rows, leave the
    range of float32.
    """
    dask = pytest.importorskip("dask.array")
    single = (X * x_unit).astype(np.float32)
    double = single.astype(np.float64)
    targets = y * y_unit
    model = make().fit(single, targets)
    expected = make().fit(double, targets)
    predictions = expected.predict(double)
    tol = {"rtol": 1e-6, "atol": 1e-6 * np.abs(predictions).max()}
    assert_allclose(model.coef_, expected.coef_, rtol=1e-6)
    assert_allclose(model.predict(single), predictions, **tol)
    score = model.score(single, targets)
    assert score == pytest.approx(expected.score(double, targets), abs=1e-6)
    if make is DropoutRegressor:
        return
    assert_allclose(model.coef_std(), expected.coef_std(), rtol=1e-5)
    interval = model.predict_interval(single[:3])
    assert_allclose(interval, expected.predict_interval(double[:3]), **tol)
    lazy = model.predict(dask.from_array(single)).compute()
    assert_allclose(lazy, predictions, **tol)
    if make is plain:
        blocks = plain().fit(lambda: [(single, targets)], None)
        assert_allclose(blocks.predict(single), predictions, **tol)
        on_torch = plain().fit(tensor(single), tensor(targets))
        assert_allclose(on_torch.predict(tensor(single)), predictions, **tol)


def test_single_precision_stays_single():
    """Predictions keep the type of X, and leave no digit where products are extreme."""
    single = X.astype(np.float32)
    for factor, y_unit, fit_intercept in ((1e30, 1e20, True), (1e-15, 1e-30, False)):
        model = plain(fit_intercept=fit_intercept).fit(single, y_unit * y)
        assert model.coef_.dtype == model.predict(single).dtype == np.float32
        new = (factor * X).astype(np.float32)
        expected = model.predict(new.astype(np.float64))
        assert_allclose(model.predict(new), expected, rtol=1e-5)


def test_unusual_containers():
    pd = pytest.importorskip("pandas")
    expected = plain().fit(X, y).coef_
    unmasked = np.ma.array(X)
    for data in ((unmasked, y), (X, y.astype(object)), (X, [str(value) for value in y])):
        assert_array_equal(plain().fit(*data).coef_, expected)
    booleans = pd.DataFrame({"a": X[:, 0], "b": X[:, 1] > 0})
    expected = plain().fit(booleans.to_numpy(float), y).coef_
    assert_allclose(plain().fit(booleans, y).coef_, expected, rtol=1e-12)
    dense = pd.DataFrame(np.where(X > 0, X, 0)).add_prefix("c")
    sparse = plain().fit(dense.astype(pd.SparseDtype(float, 0)), y)
    assert_allclose(sparse.coef_, plain().fit(dense, y).coef_)


def test_rows_that_repeat_by_rounding_are_no_alarm(seed):
    rng = np.random.default_rng(seed)
    column = rng.standard_normal((300, 1))
    columns = rng.standard_normal((300, 2))
    noise = rng.standard_normal(300)
    for X in (column.round(1), 500 * column.round(), columns.round(), 3 * columns.round()):
        y = X[:, 0] + X.std() * noise
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for make in (tuned, adaptive):
                make(random_state=seed).fit(X, y)
                make(random_state=seed).fit(X, (10 * y / X.std()).round())


def test_repeated_rows_are_counted(seed):
    rng = np.random.default_rng(seed)
    twice = np.repeat(np.arange(300), 2)
    for X, y in (
        (rng.standard_normal((300, 2))[twice], rng.standard_normal(600)),
        (rng.standard_normal((300, 1))[twice], rng.standard_normal(300)[twice]),
    ):
        with pytest.warns(RepeatedRowsWarning, match="300 of 600") as caught:
            tuned(random_state=seed).fit(X, y)
        (warning,) = [w.message for w in caught if isinstance(w.message, RepeatedRowsWarning)]
        assert (warning.repeated, warning.n_rows) == (300, 600)
