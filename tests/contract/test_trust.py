"""No silent nonsense: columns that hold one value, columns of zeros, members without rows; in every
engine.
"""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn

from loops import case
from olsen import (
    AdaptiveOLSEnsembleRegressor,
    DropoutRegressor,
    OLSEnsembleRegressor,
    OLSEnsembleRegressorCV,
    member_coefficients,
)

VALUES = [0.014, 1 / 3, -7.7, 1e6 * np.pi, 1e-7, 0.0]


@pytest.fixture(autouse=True)
def arrays_of_other_libraries(monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # scikit-learn asks for it before it follows them


def in_blocks(X, y, weight):
    return (
        lambda: ((X[i : i + 37], y[i : i + 37], weight[i : i + 37]) for i in range(0, len(y), 37)),
        None,
        None,
    )


def dask_arrays(*arrays):
    da = pytest.importorskip("dask.array")
    return [da.from_array(a, chunks=(41, -1)[: a.ndim]) for a in arrays]


def tensors(*arrays):
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    return [torch.asarray(a) for a in arrays]


ENGINES = {
    "array": lambda *data: data,
    "Fortran order": lambda X, *rest: (np.asfortranarray(X), *rest),
    "float32": lambda X, *rest: (X.astype(np.float32), *rest),
    "csr": lambda X, *rest: (sp.csr_array(X), *rest),
    "blocks": in_blocks,
    "dask": dask_arrays,
    "torch": tensors,
}
SETTINGS = [
    {},
    {"max_samples": 0.6},
    {"max_samples": 0.6, "n_estimators": 300},
    {"solver": "gram", "max_samples": 0.9, "n_estimators": 400},
    {"solver": "masked_cg"},
    {"solver": "orthogonal"},
    {"max_features": 0.9, "n_estimators": 200},
]


def data_with_a_constant(value, seed, n=200, p=8):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    X[:, 2] = value
    return X, X[:, 3:].sum(axis=1) + rng.standard_normal(n), rng.uniform(0.1, 3, n)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_column_that_holds_one_value_has_no_coefficient(engine, seed):
    """And the others are those of the table without it."""
    for value, settings in product(VALUES, SETTINGS):
        if engine in ("blocks", "dask", "torch") and settings.get("solver") not in (
            None,
            "masked_cg",
        ):
            continue  # these engines have solvers of their own
        if engine in ("blocks", "dask") and "max_samples" in settings:
            continue  # and members there see all rows
        with case(value, settings), sklearn.config_context(array_api_dispatch=engine == "torch"):
            X, y, weight = data_with_a_constant(value, seed)
            model = OLSEnsembleRegressor(20, 0.7, random_state=seed).set_params(**settings)
            coef = np.asarray(model.fit(*ENGINES[engine](X, y, weight)).coef_)
            assert coef[2] == 0 and np.abs(coef).max() < 10 and abs(float(model.intercept_)) < 10


def test_tuning_and_dropout_know_constant_columns(seed):
    """Error curves with weights do not see them, up to the draw of the columns."""
    tuned = [OLSEnsembleRegressorCV(30, cv=cv, random_state=0) for cv in (None, 4, "gcv")]
    tuned += [OLSEnsembleRegressorCV(cv=cv, sampling="determinantal") for cv in (None, 4, "gcv")]
    tuned += [
        AdaptiveOLSEnsembleRegressor(n_estimators=30, cv=cv, random_state=0) for cv in (None, 4)
    ]
    dropout = [DropoutRegressor(0.6), DropoutRegressor(0.6, solver="sgd", tol=0.05, random_state=0)]
    for model, value in product([*tuned, *dropout], VALUES):
        X, y, weight = data_with_a_constant(value, seed)
        assert model.fit(X, y, weight).coef_[2] == 0, (model, value)
    X, y, weight = data_with_a_constant(0.014, seed, n=60, p=6)
    with_it, without = (
        OLSEnsembleRegressorCV(5, [A.shape[1]], cv=5, random_state=seed).fit(A, y, weight)
        for A in (X, np.delete(X, 2, axis=1))
    )
    scores, expected = (model.cv_results_["mean_test_score"] for model in (with_it, without))
    np.testing.assert_allclose(scores, expected, rtol=1e-9)


def test_a_column_of_zeros_has_no_coefficient_beside_dependent_ones(seed):
    """In the users' units some columns are a thousand million times larger than others."""
    rng = np.random.default_rng(seed)
    X = np.zeros((40, 7))
    X[:, :3] = 1e-9 * rng.standard_normal((40, 3))
    X[:, 3] = X[:, 0] + X[:, 1]
    X[:, 5] = 1e8 * rng.standard_normal(40)
    X[:, 6] = 3 * X[:, 5]
    for solver in ["auto", "orthogonal", "gram"]:
        model = OLSEnsembleRegressor(12, 1.0, solver=solver, random_state=seed).fit(
            X, rng.standard_normal(40)
        )
        assert model.coef_[4] == 0, solver


def test_coin_flips_never_leave_a_member_without_rows(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((20, 30)), rng.standard_normal(20)
    for max_samples, state in product([0.1, 0.2, 0.3], range(30)):
        model = OLSEnsembleRegressor(
            10, 0.5, max_samples, sampling="bernoulli", random_state=state
        ).fit(X, y)
        assert min(map(len, model.sample_subsets_)) >= 2
        assert np.isfinite(model.predict(X)).all()


@pytest.mark.filterwarnings("ignore:members have 2 columns and 1 rows")
def test_members_of_one_row_are_refused_where_the_intercept_takes_it():
    X = np.random.default_rng(0).standard_normal((20, 5))
    for max_samples in (1, 0.05):
        with pytest.raises(
            ValueError, match=r"max_samples=.* gives every member 1 of 20 rows.*float 1\.0"
        ):
            OLSEnsembleRegressor(5, max_samples=max_samples).fit(X, X[:, 0])
        OLSEnsembleRegressor(5, max_samples=max_samples, fit_intercept=False).fit(X, X[:, 0])


@pytest.mark.filterwarnings("error")
def test_what_is_left_out_does_not_depend_on_where_columns_lie(seed):
    """Members with more columns than rows: intervals, standard errors and the scale of the same
    columns, moved.
    """
    for max_samples, offset in product([1.0, 0.6], [1e4, 1e6]):
        with case(max_samples, offset):
            rng = np.random.default_rng(seed)
            X, new = rng.standard_normal((30, 80)), rng.standard_normal((5, 80))
            y = X[:, :5].sum(axis=1) + rng.standard_normal(30)
            model = OLSEnsembleRegressor(20, 50, max_samples, random_state=seed)
            found = [
                (
                    model.fit(X + c, y).predict_interval(new + c, 0.8),
                    model.predict(new + c, return_std=True)[1],
                )
                for c in (0.0, offset)
            ]
            for here, there in zip(*found, strict=True):
                assert np.isfinite(here).all()
                np.testing.assert_allclose(there, here, rtol=1e-12 * offset, atol=1e-12 * offset)
            model.set_params(scale="auto")
            assert model.fit(X + offset, y).scale_ == pytest.approx(
                model.fit(X, y).scale_, rel=1e-12 * offset
            )


def test_few_rows_have_finite_standard_errors_and_do_not_claim_to_know_everything(seed):
    for n in [2, 3, 4]:
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((n, 5)), rng.standard_normal(n)
        model = OLSEnsembleRegressor(5, 5, random_state=seed).fit(X, y)
        assert np.isfinite(model.predict(X, return_std=True)[1]).all(), n
        if n == 2:
            for tuned in (
                OLSEnsembleRegressorCV(10, random_state=seed),
                OLSEnsembleRegressorCV(sampling="determinantal"),
                AdaptiveOLSEnsembleRegressor(n_estimators=10, random_state=seed),
            ):
                with case(tuned):
                    tuned.fit(X[:, :3], y)
                    np.testing.assert_allclose(
                        tuned.cv_prediction_, y[::-1]
                    )  # the other row's target
                    assert -tuned.best_score_ >= (1 - 1e-12) * (y[0] - y[1]) ** 2


# leave-one-out where rows are fitted exactly


def refitted_without_each_row(model, X, y):
    """Prediction of every row by the same members, each fitted without it by NumPy's least squares."""
    found = np.zeros(len(y))
    for l in range(len(y)):
        rows = np.delete(np.arange(len(y)), l)
        for columns in model.feature_subsets_:
            mean = X[np.ix_(rows, columns)].mean(axis=0)
            b = np.linalg.lstsq(X[np.ix_(rows, columns)] - mean, y[rows] - y[rows].mean())[0]
            found[l] += (y[rows].mean() + (X[l, columns] - mean) @ b) / len(model.feature_subsets_)
    return found


def with_singles(seed, n=24):
    """Six columns of numbers, and six dummies that occur once."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.standard_normal((n, 6)), np.eye(n)[:, :6]])
    return X, X[:, :6].sum(axis=1) + rng.standard_normal(n)


def with_a_row_far_out(seed, n=24):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 8))
    X[3] *= 3e5
    return X, X[:, 0] / 1e5 + rng.standard_normal(n)


def test_rows_that_are_fitted_exactly_are_left_out_as_a_refit_would(seed):
    """By intervals; and in tuning: with all columns there is one member, whatever the path, whose
    error is known.
    """
    for data in [with_singles, with_a_row_far_out]:
        with case(data):
            X, y = data(seed)
            n, p = X.shape
            model = OLSEnsembleRegressor(20, 5, random_state=seed).fit(X, y)
            largest = np.abs(y - refitted_without_each_row(model, X, y)).max()
            interval = model.predict_interval(X[:1], coverage=n / (n + 1), method="jackknife")[0]
            assert np.isclose((interval[1] - interval[0]) / 2, largest, rtol=1e-6)
            model = OLSEnsembleRegressorCV(3, [p], scale=1.0, random_state=seed).fit(X, y)
            predicted = refitted_without_each_row(OLSEnsembleRegressor(1, p).fit(X, y), X, y)
            np.testing.assert_allclose(
                model.cv_prediction_, predicted, rtol=1e-6, atol=1e-6 * np.abs(predicted).max()
            )
            assert np.isclose(-model.best_score_, np.mean((y - predicted) ** 2), rtol=1e-6)


def test_without_signal_there_is_no_scale_to_estimate(seed):
    for value in [3.7, 0.0]:
        with case(value):
            y = np.random.default_rng(seed).standard_normal(50)
            X = np.full((50, 4), value)
            assert OLSEnsembleRegressor(10, scale="auto", random_state=seed).fit(X, y).scale_ == 1.0
            model = OLSEnsembleRegressorCV(10, random_state=seed).fit(X, y)
            others = (y.sum() - y) / 49
            assert model.scale_ == 1.0
            np.testing.assert_allclose(model.cv_prediction_, others, atol=1e-12)
            model = AdaptiveOLSEnsembleRegressor(n_estimators=10, random_state=seed).fit(X, y)
            assert model.scheme_weights_ == {"null": 1.0} and not model.coef_.any()
            np.testing.assert_allclose(model.predict(X), y.mean(), rtol=1e-12)


# extremes


def test_units_change_nothing_but_units(seed):
    """Powers of two round nothing; within the range that is fitted at all, coefficients agree to
    1e-12.
    """
    rng = np.random.default_rng(seed)
    X, w = rng.standard_normal((30, 6)), rng.uniform(0.5, 2, 30)
    y = X[:, 0] + rng.standard_normal(30)
    models = [
        OLSEnsembleRegressor(8, 3, random_state=seed),
        OLSEnsembleRegressor(8, 1.0, max_samples=4, random_state=seed),
        OLSEnsembleRegressorCV(8, random_state=seed),
        OLSEnsembleRegressorCV(sampling="determinantal"),
        AdaptiveOLSEnsembleRegressor(n_estimators=8, random_state=seed),
        DropoutRegressor(0.6),
    ]
    plain = [model.fit(X, y, w).coef_.copy() for model in models]
    for exponents in product([-160, 0, 160], [-160, 160], [-160, 160]):
        x_unit, y_unit, w_unit = (2.0**e for e in exponents)
        for model, coef in zip(models, plain, strict=True):
            with case(exponents, model):
                model.fit(X * x_unit, y * y_unit, w * w_unit)
                np.testing.assert_allclose(model.coef_ / (y_unit / x_unit), coef, rtol=1e-12)


def test_columns_that_cannot_be_squared_are_named(seed):
    """Of X and of y, in every engine. Squares of 1e-170 are zero, which would look like a constant
    column.
    """
    X, Y = np.random.default_rng(seed).standard_normal((2, 100, 5))
    for engine, factor in product(
        ["array", "csr", "blocks", "dask", "torch", "stream"], [1e-170, 1e-55, 1e55, 1e200]
    ):
        units = np.where(np.arange(5) == 3, factor, 1.0)
        for name, given in {"X": (X * units, Y[:, 0]), "y": (X, Y * units)}.items():
            model = OLSEnsembleRegressor(5, random_state=seed)
            fit = model.partial_fit if engine == "stream" else model.fit
            with (
                case(engine, factor, name),
                sklearn.config_context(array_api_dispatch=engine == "torch"),
                pytest.raises(
                    ValueError, match=rf"column 3 of {name} .* at most .*e.*StandardScaler"
                ),
            ):
                fit(*ENGINES.get(engine, ENGINES["array"])(*given, np.ones(100)))


def test_many_rows_are_all_asked_how_large_a_column_is(seed):
    """A column of nearly nothing is refused, one that says something in its last row alone is
    fitted.
    """
    for first, order in product([0.0, 1e-200], ["C", "F"]):
        with case(first, order):
            rng = np.random.default_rng(seed)
            X = np.asarray(rng.standard_normal((2000, 40)), order=order)
            y, model = (
                X[:, 0] + rng.standard_normal(2000),
                OLSEnsembleRegressor(1, 1.0, random_state=seed),
            )
            X[:, 3] = first
            for extreme, words in ((1e-200, "1e-200"), (-1e60, r"1e\+60")):
                X[-1, 3] = extreme
                with pytest.raises(
                    ValueError, match=rf"column 3 of X has entries of at most {words};"
                ):
                    model.fit(X, y)
            X[-1, 3] = (
                # a dummy that occurs once: it fits its row, and the others are fitted without it
                1.0
            )
            model.fit(X, y)
            exact = np.linalg.lstsq(np.c_[np.ones(1999), np.delete(X, 3, axis=1)[:-1]], y[:-1])[0]
            np.testing.assert_allclose(np.delete(model.coef_, 3), exact[1:], rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(model.predict(X[-1:]), y[-1:])


def test_a_column_far_from_zero_does_not_hide_what_others_say(seed):
    """Its noise counts in directions that it takes part in; the others are nearly collinear, and
    yet known.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((200, 4))
    X[:, 1] = X[:, 0] + 1e-5 * X[:, 1]
    y = 1e5 * (X[:, 1] - X[:, 0]) + 0.1 * rng.standard_normal(200)
    X[:, 3] += 1e10
    assert OLSEnsembleRegressor(1, 1.0).fit(X, y).score(X, y) > 0.98
    assert OLSEnsembleRegressor(1, 1.0, solver="orthogonal").fit(X, y).score(X, y) > 0.98


def test_shortest_coefficients_do_not_mind_units(seed):
    """Six rows, ten columns in units that differ by 1e30: every row is fitted, by coefficients of
    minimum norm.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((6, 10)) * 10.0 ** rng.integers(-15, 15, 10)
    y = rng.standard_normal(6)
    model = OLSEnsembleRegressor(1, 1.0).fit(X, y)
    np.testing.assert_allclose(model.predict(X), y, atol=1e-8)
    large = np.argsort(-np.abs(X).max(axis=0))[
        :5
    ]  # columns in smaller units have next to nothing to add
    exact = np.linalg.lstsq(X[:, large] - X[:, large].mean(axis=0), y - y.mean())[0]
    assert np.linalg.norm(model.coef_) <= np.linalg.norm(exact) * (1 + 1e-6)


def test_a_sparse_column_whose_mean_is_its_first_value_is_not_constant(seed):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 4, (40, 5)).astype(float)
    X[:, 0] = np.resize([1.0, 0.0, 2.0], 40)
    X[-1, 0] = 1.0  # the mean is one, as is the first value
    y = X.sum(axis=1) + rng.standard_normal(40)
    dense, sparse = (
        OLSEnsembleRegressor(10, 3, random_state=seed).fit(A, y) for A in (X, sp.csr_array(X))
    )
    assert X[:, 0].mean() == X[0, 0]
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-10)


# parameters


def test_parameters_that_make_no_sense_are_named():
    every = {
        "fit_intercept": (None, "yes"),
        "keep_rows": (None, 1),
        "n_jobs": ("2", 1.5, 0),
        "verbose": (-1, "x"),
        "n_estimators": (0, 2.5),
        "random_state": (-3,),
    }
    sizes = {
        "scale": (None, np.inf, "x", True),
        "sampling": (None, "x"),
        "design": (None, "x"),
        "max_samples": (0, 1.5),
    }
    wrong = {
        OLSEnsembleRegressor: every | sizes | {"mixing": ("median", None), "solver": ("x",)},
        OLSEnsembleRegressorCV: every | sizes | {"cv": ("x", 1)},
        AdaptiveOLSEnsembleRegressor: (
            every | {"schemes": ("ridge", [], ["x"], 3), "cv": ("gcv", 1)}
        ),
        DropoutRegressor: {
            "rescale": (None,),
            "fit_intercept": (0,),
            "verbose": (-1,),
            "tol": (-1,),
            "max_iter": (1.5,),
        },
    }
    X = np.random.default_rng(0).standard_normal((20, 3))
    for Model, parameters in wrong.items():
        for name, value in (
            (name, value) for name, values in parameters.items() for value in values
        ):
            with case(Model, name, value), pytest.raises(ValueError, match=name):
                Model(**{name: value}).fit(X, X[:, 0])


def test_members_are_lists_of_numbers_or_masks():
    X = np.random.default_rng(0).standard_normal((20, 3))
    for members in ([], [[0.5]], [[[0, 1]]], [["a"]], [[True, False]]):
        with case(members), pytest.raises(ValueError, match="member"):
            member_coefficients(X, X[:, 0], members)
    masked, listed = (
        member_coefficients(X, X[:, 0], [own])[0] for own in ([True, False, True], [0, 2])
    )
    np.testing.assert_array_equal(masked, listed)


# warnings


def test_warnings_point_at_the_users_line():
    for Model in [
        OLSEnsembleRegressor,
        OLSEnsembleRegressorCV,
        AdaptiveOLSEnsembleRegressor,
        DropoutRegressor,
    ]:
        with case(Model):
            X = np.random.default_rng(0).standard_normal((20, 3))
            with pytest.warns(UserWarning, match="is constant") as caught:
                Model().fit(X, np.ones(20))
            assert {warning.filename for warning in caught} == {__file__}


def test_advice_near_the_peak_can_be_taken():
    """With three rows and an intercept no number of columns lies below the peak, so none is
    advised.
    """
    X = np.random.default_rng(0).standard_normal((3, 6))
    with pytest.warns(
        UserWarning, match=r"members have 1 column and 3 rows.*Use at least 4 columns"
    ):
        OLSEnsembleRegressor(5, 1, random_state=0).fit(X, X[:, 0])
    X = np.random.default_rng(0).standard_normal((8, 9))
    with pytest.warns(
        UserWarning, match=r"Use at most 5 columns \(max_features\), or at least 9 columns"
    ):
        OLSEnsembleRegressor(5, 7, random_state=0).fit(X, X[:, 0])
