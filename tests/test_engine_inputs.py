"""What users may hand over to engines other than memory, and the words in which the rest is refused."""

import warnings

import numpy as np
import pytest
import sklearn

from olsen import OLSEnsembleRegressor, OLSEnsembleRegressorCV, _engines

pd = pytest.importorskip("pandas")
da, dd = pytest.importorskip("dask.array"), pytest.importorskip("dask.dataframe")

N, P = 60, 6
LETTERS = list("abcdef")
BOTH = pytest.mark.parametrize("cls", [OLSEnsembleRegressor, OLSEnsembleRegressorCV])


@pytest.fixture(autouse=True)
def array_api(monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")


@pytest.fixture
def Xy(seed):
    rng = np.random.RandomState(seed)
    X = rng.randn(N, P)
    return X, X @ rng.randn(P) + rng.randn(N) + 5


def model(cls=OLSEnsembleRegressor, **settings):
    return cls(10, random_state=0, **settings)


def frame(X):
    return pd.DataFrame(X, columns=list("abcdefghij")[: X.shape[1]])


def lazy(X):
    return da.from_array(X, chunks=(20, X.shape[1]))


def lazy_frame(X):
    return dd.from_pandas(frame(X), npartitions=3)


def cut(*arrays, rows=20):
    """A function that returns an iterator over blocks."""
    return lambda: (tuple(a[i : i + rows] for a in arrays) for i in range(0, N, rows))


def cut_all(*arrays):
    return (tuple(a[i : i + 70] for a in arrays) for i in range(0, len(arrays[0]), 70))


def assert_same(found, expected):
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.intercept_, expected.intercept_, atol=1e-8)


# weights


@BOTH
@pytest.mark.parametrize(("bad", "message"), [(np.nan, "NaN or infinity in sample_weight"), (-5.0, "negative weights")])
def test_bad_weights_of_dask_are_refused(cls, bad, message, Xy):
    X, y = Xy
    weight = np.ones(N)
    weight[20:30] = bad
    with pytest.raises(ValueError, match=rf"block 1 of the Dask array \(rows 20 to 39\).*{message}, in 10 rows: 20, 2"):
        model(cls).fit(lazy(X), y, weight)


@pytest.mark.parametrize("bad", [np.nan, -5.0])
def test_bad_weights_are_refused_however_dask_solves(bad, Xy):
    X, y = Xy
    weight = np.ones(N)
    weight[3] = bad
    with pytest.raises(ValueError, match=r"in 1 rows: 3\."):  # fewer rows than columns
        OLSEnsembleRegressor(5, 20).fit(da.from_array(np.tile(X[:10], 5), chunks=(5, 30)), y[:10], weight[:10])
    with pytest.raises(ValueError, match=r"in 1 rows: 3\."):
        model().fit(lazy(X), y, weight)


@pytest.mark.parametrize("positive", [0, 1])
@pytest.mark.parametrize("how", ["dask", "frame", "blocks", "wide", "torch"])
def test_weights_that_leave_no_rows_are_told_in_one_way(how, positive, Xy):
    X, y = Xy
    weight = np.zeros(N)
    weight[:positive] = 1
    estimator, given = model(), (X, y, weight)
    if how == "dask":
        given = lazy(X), y, weight
    elif how == "frame":
        given = lazy_frame(X), y, weight
    elif how == "blocks":
        given = cut(X, y, weight), None
    elif how == "wide":
        estimator, given = OLSEnsembleRegressor(5, 80), (lazy(np.tile(X, 20)), y, weight)
    elif how == "torch":
        torch = pytest.importorskip("torch")
        given = tuple(map(torch.asarray, given))
    message = f"sample_weight is positive for {positive} of 60 rows, but at least 2 rows with positive weight are"
    with sklearn.config_context(array_api_dispatch=how == "torch"), pytest.raises(ValueError, match=message):
        estimator.fit(*given)


@BOTH
@pytest.mark.parametrize("how", ["npy", "zarr", "parquet", "dask", "frame", "blocks"])
def test_one_weight_for_all_rows(cls, how, Xy, tmp_path):
    X, y = Xy
    given = {"dask": (lazy(X), y, 2.0), "frame": (lazy_frame(X), y, 2.0)}.get(how)
    if how == "blocks":
        given = lambda: ((X[i : i + 20], y[i : i + 20], 2.0) for i in (0, 20, 40)), None
    elif how == "npy":
        np.save(tmp_path / "X.npy", X)
        given = tmp_path / "X.npy", y, 2.0
    elif how == "zarr":
        given = pytest.importorskip("zarr").array(X, chunks=(20, P)), y, 2.0
    elif how == "parquet":
        pytest.importorskip("pyarrow")
        frame(X).assign(t=y).to_parquet(tmp_path / "t.parquet")
        given = tmp_path / "t.parquet", "t", 2
    assert_same(model(cls).fit(*given), model(cls).fit(cut(X, y, np.full(N, 2.0)), None))


def test_weights_in_a_column_and_a_single_target_are_refused(Xy, tmp_path):
    X, y = Xy
    with pytest.raises(ValueError, match=r"sample_weight has 2 dimensions, shape .*60, 1.*one number for each row"):
        model().fit(lazy(X), y, np.ones((N, 1)))
    with pytest.raises(ValueError, match="sample_weight has 2 dimensions"):
        model().fit(lazy(X), y, da.ones((N, 1), chunks=20))
    np.save(tmp_path / "X.npy", X)
    with pytest.raises(ValueError, match=r"y is a single value, but the file .* has 60 rows"):
        model().fit(tmp_path / "X.npy", 2.0)


# names and number of columns


@pytest.mark.parametrize("make", [lazy, lazy_frame])
def test_prediction_of_dask_counts_columns(make, Xy):
    X, y = Xy
    fitted = model().fit(lazy(X), y)
    with pytest.raises(ValueError, match=r"X has 3 features, but OLSEnsembleRegressor is expecting 6 features as"):
        _engines.predict(make(X[:, :3]), fitted.coef_, fitted.intercept_, "OLSEnsembleRegressor")
    with pytest.raises(ValueError, match="features"):
        fitted.predict(make(X[:, :3]))
    with pytest.raises(ValueError, match="expected 2D"):
        fitted.predict(make(X)[:, 0] if make is lazy else make(X)["a"])


@pytest.mark.parametrize(
    "columns",
    [LETTERS[::-1], list("abcdeg"), LETTERS[:3], [*LETTERS, "g"], list("uvwxyz")],
    ids="".join,
)
def test_prediction_of_dask_frames_compares_names_in_scikit_learns_words(columns, Xy):
    X, y = Xy
    fitted = model().fit(frame(X), y)
    new = pd.DataFrame(np.ones((N, len(columns))), columns=columns)
    with pytest.raises(ValueError) as expected:
        fitted.predict(new)
    given = dd.from_pandas(new, npartitions=2)
    with pytest.raises(ValueError) as found:
        _engines.predict(given, fitted.coef_, fitted.intercept_, type(fitted).__name__, fitted.feature_names_in_)
    assert str(found.value) == str(expected.value)
    same = _engines.predict(lazy_frame(X), fitted.coef_, fitted.intercept_, "me", names=fitted.feature_names_in_)
    np.testing.assert_allclose(same.compute(), fitted.predict(frame(X)))


@BOTH
def test_blocks_that_are_frames_keep_their_names(cls, Xy):
    X, y = Xy
    fitted = model(cls).fit(cut(frame(X), pd.Series(y)), None)
    assert fitted.feature_names_in_.tolist() == LETTERS
    assert not hasattr(model(cls).fit(cut(X, y), None), "feature_names_in_")
    assert not hasattr(model(cls).fit(cut(pd.DataFrame(X), y), None), "feature_names_in_")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (LETTERS[::-1], r"block 1 of the iterator.*'f'"),
        (["a", "b", "c", "d", "e", "g"], r"block 1 .*'f', 'g'"),
    ],
)
def test_blocks_with_other_names_are_refused(columns, message, Xy):
    X, y = Xy
    other = frame(X).set_axis(columns, axis=1)
    with pytest.raises(ValueError, match=message):
        model().fit(lambda: iter([(frame(X)[:30], y[:30]), (other[30:], y[30:])]), None)


# sources that are read twice


def test_the_same_iterator_twice_is_noticed(Xy):
    X, y = Xy
    blocks = cut(np.c_[X, X[:, 0]], y)()
    with pytest.raises(ValueError, match=r"60 rows at its first reading and 0 at its second.*fresh iterator"):
        model(max_features=1.0).fit(lambda: blocks, None)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("how", ["fewer", "other rows", "other columns"])
def test_other_rows_at_the_second_reading_are_noticed(how, fit_intercept, Xy):
    X, y = Xy
    Z = np.c_[X, X[:, 0]]
    later = {"fewer": (Z[:50], y[:50]), "other rows": (Z + (Z[7, 2] == Z) * 0.1, y), "other columns": (X, y)}[how]
    readings = iter([(Z, y), later])
    with pytest.raises(ValueError, match="must give the same rows in the same order at every reading"):
        model(max_features=1.0, fit_intercept=fit_intercept).fit(lambda: iter([next(readings)]), None)


@pytest.mark.parametrize("offset", [0, 1e6, -1e9])
@pytest.mark.parametrize("settings", [{}, {"fit_intercept": False}, {"max_samples": 0.5}], ids=str)
def test_the_same_rows_at_the_second_reading_are_never_refused(settings, offset, Xy):
    X, y = Xy
    X, y = np.tile(X, (10, 1)), np.tile(y, 10)
    Z = np.c_[X, X[:, 0], np.ones(len(X))] * 10.0 ** np.arange(-4, 4) + offset
    weight = np.arange(len(X)) % 3.0
    fitted = model(max_features=1.0, **settings).fit(lambda: cut_all(Z, y + offset, weight), None)
    assert np.isfinite(fitted.coef_).all()


# Dask data frames


@BOTH
def test_target_and_weights_are_columns_of_a_dask_frame(cls, Xy):
    X, y = Xy
    weight = np.arange(N) % 3.0
    whole = dd.from_pandas(frame(X).assign(t=y, w=weight), npartitions=3)
    fitted = model(cls).fit(whole, "t", "w")
    assert fitted.feature_names_in_.tolist() == LETTERS
    assert_same(fitted, model(cls).fit(lazy(X), y, weight))
    assert model(cls).fit(whole, ["t", "w"]).coef_.shape == (2, P)
    for given, message in (
        ((whole, "price"), r"y='price' is no column of the Dask data frame; it has 'a', .*'w'"),
        ((whole, "t", "v"), "sample_weight='v' is no column"),
        ((lazy(X), "t"), "y='t' names a column, but X is a Dask array"),
        ((whole[["t"]], "t"), "no columns left for X"),
    ):
        with pytest.raises(ValueError, match=message):
            model(cls).fit(*given)


@BOTH
@pytest.mark.parametrize("make", [np.asarray, pd.Series, list])
def test_arrays_beside_a_dask_frame_are_cut_like_it(cls, make, Xy):
    X, y = Xy
    weight = np.arange(N) % 3.0
    assert_same(model(cls).fit(lazy_frame(X), make(y), make(weight)), model(cls).fit(lazy(X), y, weight))
    with pytest.raises(ValueError, match="y has 59 rows, but X has 60"):
        model(cls).fit(lazy_frame(X), make(y[:-1]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (lazy(X + 1j), y), "X is of type complex128; real numbers needed"),
        (lambda X, y: (lazy(X), y + 1j), "y is of type complex128; real numbers needed"),
        (lambda X, y: (lazy(X), lazy(X)[:, 0].astype(complex)), "y is of type complex128"),
        (lambda X, y: (lazy(X), y.astype(str)), "y is of type <U.*; real numbers needed"),
        (lambda X, y: (lazy(X), y.astype(str).astype(object) + "x"), r"y of chunk \d .* does not hold numbers"),
        (lambda X, y: (dd.from_pandas(frame(X).assign(t="u", s=1, k="v"), npartitions=3), y),
         "2 of 9 columns do not hold numbers: 't', 'k'. Encode them first"),
        (lambda X, y: (dd.from_pandas(frame(X).assign(k=pd.Categorical(range(N))), npartitions=3), y),
         "1 of 7 columns do not hold numbers: 'k'"),
        (lambda X, y: (dd.from_pandas(frame(X).assign(a=1j), npartitions=3), y), "do not hold numbers: 'a'"),
        (lambda X, y: (dd.from_pandas(frame(X).assign(t=y.astype(str)), npartitions=3), "t"), "y is of type str"),
    ],
)  # fmt: skip
@BOTH
def test_types_of_dask_are_checked(cls, change, message, Xy):
    with pytest.raises(ValueError, match=message):
        model(cls).fit(*change(*Xy))


def test_whole_numbers_and_objects_of_dask_are_numbers(Xy):
    X, y = Xy
    X = np.rint(3 * X)
    expected = model().fit(X, y)
    assert_same(model().fit(lazy(X.astype(object)), y), expected)
    assert_same(model().fit(dd.from_pandas(frame(X).astype("Int64"), npartitions=3), y), expected)


def test_rows_of_a_dask_frame_are_named_by_partition(Xy):
    X, y = Xy
    X[23, 1] = np.nan
    whole = lazy_frame(X).assign(t=lazy_frame(X)["a"])
    with pytest.raises(ValueError, match=r"partition 1 of the Dask data frame contains .*in X, in 1 rows .*: 3\. "):
        model().fit(whole, "t")
    with pytest.raises(ValueError, match=r"block 1 of the Dask data frame \(rows 20 to 39\).*in 1 rows: 23\. "):
        model().fit(lazy_frame(X), y)


# warnings


@pytest.mark.parametrize("how", ["dask", "blocks"])
def test_weightless_chunks_do_not_warn(how, Xy):
    X, y = Xy
    Z, weight = np.c_[X, X[:, 0]], np.r_[np.zeros(20), np.ones(40)]
    given = (lazy(Z), y, weight) if how == "dask" else (cut(Z, y, weight), None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = model(max_features=1.0).fit(*given)
    np.testing.assert_allclose(fitted.predict(Z), model(max_features=1.0).fit(Z[20:], y[20:]).predict(Z), atol=1e-6)


@pytest.mark.parametrize("bad", [np.inf, 1e200])
@pytest.mark.parametrize("how", ["dask", "blocks"])
def test_infinity_is_an_error_and_no_warning(how, bad, Xy):
    X, y = Xy
    X[[3, 4], 2] = bad, -bad
    with warnings.catch_warnings(), pytest.raises(ValueError, match="block 0 of"):
        warnings.simplefilter("error")
        model().fit(*((lazy(X), y) if how == "dask" else (cut(X, y), None)))


# other array libraries


@pytest.mark.parametrize("library", ["torch", "array_api_strict"])
def test_rows_of_another_type_are_cast_to_that_of_the_coefficients(library, Xy):
    xp = pytest.importorskip(library)
    X, y = Xy
    X = np.rint(2 * X)
    with sklearn.config_context(array_api_dispatch=True):
        fitted = model().fit(xp.asarray(X), xp.asarray(y))
        expected = np.asarray(fitted.predict(xp.asarray(X)))
        for dtype in (np.float32, np.int64, np.int8):
            found = fitted.predict(xp.asarray(X.astype(dtype)))
            assert found.dtype == fitted.coef_.dtype
            np.testing.assert_allclose(np.asarray(found), expected)
        with pytest.raises(ValueError, match="real numbers needed"):
            fitted.predict(xp.asarray(X + 1j))


@pytest.mark.parametrize("library", ["torch", "array_api_strict"])
def test_coefficients_elsewhere_need_the_dispatch(library, Xy):
    xp = pytest.importorskip(library)
    X, y = Xy
    with sklearn.config_context(array_api_dispatch=True):
        fitted = model().fit(xp.asarray(X), xp.asarray(y))
    for given in (X, frame(X), lazy(X)):
        with pytest.raises(ValueError, match=rf"coef_ is an array of {library} .*array_api_dispatch=True"):
            fitted.predict(given)


# functions and zarr


@pytest.mark.parametrize("given", [None, 3])
def test_a_function_that_returns_no_iterator_is_refused(given):
    with pytest.raises(ValueError, match=f"X is a function that returned {given} .* must return an iterator"):
        model().fit(lambda: given, None)


def test_a_zarr_group_is_refused(Xy, tmp_path):
    zarr = pytest.importorskip("zarr")
    X, y = Xy
    group = zarr.open_group(str(tmp_path / "g.zarr"), mode="w")
    with pytest.raises(ValueError, match=r"is a group, which holds no array"):
        model().fit(tmp_path / "g.zarr", y)
    group.create_array("rows", shape=X.shape, dtype=X.dtype)[:] = X
    for given in (tmp_path / "g.zarr", group):
        with pytest.raises(ValueError, match=r"is a group, which holds the arrays 'rows'. Pass one array"):
            model().fit(given, y)
    assert_same(model().fit(group["rows"], y), model().fit(X, y))
    (tmp_path / "empty.zarr").mkdir()
    with pytest.raises(ValueError, match=r"zarr array .*empty"):
        model().fit(tmp_path / "empty.zarr", y)


def test_the_model_knows_its_columns_where_rows_are_on_a_cluster():
    """Through the public door: reversed or renamed columns of a Dask data frame are refused."""
    dd, pd = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    X = np.random.default_rng(0).standard_normal((30, 3))
    frame = pd.DataFrame(X, columns=list("abc"))
    model = OLSEnsembleRegressor(10, random_state=0).fit(frame, X[:, 0])
    there = model.predict(dd.from_pandas(frame, npartitions=2)).compute()
    np.testing.assert_allclose(there, model.predict(frame))
    for other in (frame[["c", "b", "a"]], frame.rename(columns={"a": "z"})):
        with pytest.raises(ValueError, match="feature names"):
            model.predict(dd.from_pandas(other, npartitions=2))
