"""What people hand over by mistake, and what they may hand over although it looks odd."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.model_selection import GroupKFold, LeavePOut, PredefinedSplit, RepeatedKFold, ShuffleSplit

from olsen import OLSEnsembleRegressor, OLSEnsembleRegressorCV, member_coefficients

rng = np.random.default_rng(0)
X = rng.standard_normal((40, 6))
Y = X @ np.arange(6) + rng.standard_normal(40)
WEIGHT = np.r_[0.0, np.ones(39)]


def plain(**settings):
    return OLSEnsembleRegressor(20, random_state=0, **settings)


def tuned(**settings):
    return OLSEnsembleRegressorCV(20, random_state=0, **settings)


@pytest.fixture
def tensor(monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    torch = pytest.importorskip("torch")
    with sklearn.config_context(array_api_dispatch=True):
        yield torch.tensor


@pytest.mark.parametrize("length", [2, 39, 41, (40, 1)])
@pytest.mark.parametrize("make", [plain, tuned])
def test_weights_of_tensors_must_fit_the_rows(tensor, make, length):
    with pytest.raises(ValueError, match=r"sample_weight has shape .* but X has 40 rows"):
        make().fit(tensor(X), tensor(Y), tensor(np.ones(length)))


def test_complex_tensors_are_refused(tensor):
    with pytest.raises(ValueError, match=r"X is of type .*complex.*real numbers"):
        plain().fit(tensor(X + 1j), tensor(Y))
    with pytest.raises(ValueError, match=r"y is of type .*complex.*real numbers"):
        plain().fit(tensor(X), tensor(Y + 1j))


def test_sparse_tensors_are_refused(tensor):
    with pytest.raises(ValueError, match="to_dense"):
        plain().fit(tensor(X).to_sparse(), tensor(Y))


def test_tensors_with_derivatives_leave_none_behind(tensor):
    model = plain().fit(tensor(X).requires_grad_(), tensor(Y))
    assert not model.coef_.requires_grad
    copy.deepcopy(model)


@pytest.mark.parametrize("method", ["jackknife+", "jackknife"])
def test_a_tiny_coverage_gives_the_narrowest_interval(method):
    model = plain().fit(X, Y)
    tiny, small = (model.predict_interval(X[:1], coverage, method)[0] for coverage in (1e-12, 1 / 41))
    np.testing.assert_array_equal(tiny, small)


@pytest.mark.parametrize("coverage", ["0.9", None, [0.5, 0.9], 0, 1, np.nan, True])
def test_coverage_is_a_number_between_zero_and_one(coverage):
    with pytest.raises(ValueError, match=r"coverage=.* strictly between 0 and 1"):
        plain().fit(X, Y).predict_interval(X[:1], coverage)


@pytest.mark.parametrize("count", [39, 400])
@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_every_row_needs_its_group(count, weight):
    with pytest.raises(ValueError, match=f"groups has {count} entries, but there are 40 rows|inconsistent"):
        tuned(cv=GroupKFold(4)).fit(X, Y, weight, groups=np.arange(count) % 4)


@pytest.mark.parametrize(
    "cv",
    [
        [(np.arange(20) + 0.5, np.arange(20, 40) + 0.7)],
        [(np.ones(10, bool), np.ones(5, bool))],
        [1, 2],
        [(np.arange(20), np.arange(20, 41))],
    ],
)
def test_splits_that_are_no_rows_are_refused(cv):
    with pytest.raises(ValueError, match="cv holds"):
        tuned(cv=cv).fit(X, Y)


@pytest.mark.parametrize(
    "cv", [RepeatedKFold(n_splits=5, n_repeats=10, random_state=0), ShuffleSplit(50, random_state=0), LeavePOut(2)]
)
def test_splitters_may_give_more_splits_than_rows(cv):
    model, listed = tuned(cv=cv).fit(X, Y), tuned(cv=list(cv.split(X))).fit(X, Y)
    np.testing.assert_allclose(model.cv_results_["mse"], listed.cv_results_["mse"])


def test_predefined_splits_number_the_rows_that_were_given():
    splitter = PredefinedSplit(np.arange(40) % 4)
    dropped = tuned(cv=PredefinedSplit((np.arange(40) % 4)[1:])).fit(X[1:], Y[1:])
    assert np.isclose(tuned(cv=splitter).fit(X, Y, WEIGHT).best_score_, dropped.best_score_)


@pytest.mark.filterwarnings("error::RuntimeWarning", "ignore::UserWarning")
@pytest.mark.parametrize("max_samples", [2, 3, 5])
@pytest.mark.parametrize("make", [plain, tuned])
def test_stacking_of_members_with_few_rows(make, max_samples):
    model = make(mixing="stacking", max_samples=max_samples).fit(X, Y)
    assert np.isfinite(model.coef_).all() and np.isclose(model.weights_.sum(), 1)


def test_masked_entries_are_not_fitted():
    masked = np.ma.masked_greater(X, 2)
    with pytest.raises(ValueError, match="masked"):
        plain().fit(masked, Y)
    with pytest.raises(ValueError, match="masked"):
        plain().fit(X, np.ma.masked_greater(Y, 1))
    with pytest.raises(ValueError, match="masked"):
        plain().fit(X, Y).predict(masked)
    plain().fit(np.ma.array(X), Y)  # nothing is masked


def test_times_are_not_targets():
    with pytest.raises(ValueError, match="times are not numbers"):
        plain().fit(X, np.datetime64("2020", "D") + np.arange(40))


def test_frames_with_sparse_columns():
    pd = pytest.importorskip("pandas")
    dense = pd.DataFrame(np.where(X > 0, X, 0), columns=list("abcdef"))
    model = plain().fit(dense.astype(pd.SparseDtype(float, 0)), Y)
    np.testing.assert_allclose(model.coef_, plain().fit(dense, Y).coef_)


def test_columns_of_one_name_are_refused():
    pd = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="several columns named 'a'; rename them"):
        plain().fit(pd.DataFrame(X, columns=list("aabbcc")), Y)


def test_lazy_frames_are_to_be_collected():
    pl = pytest.importorskip("polars")
    with pytest.raises(ValueError, match="collect"):
        plain().fit(pl.DataFrame(X).lazy(), Y)


def test_weights_of_six_hundred_decades_are_refused():
    for model in (plain(), tuned()):
        with pytest.raises(ValueError, match="sample_weight spans"):
            model.fit(X, Y, np.geomspace(1e-300, 1e300, 40))


def test_only_fit_reads_files():
    with pytest.raises(ValueError, match="only fit reads files"):
        plain().fit(X, Y).predict("rows.npy")


def test_a_list_of_blocks_is_no_table():
    with pytest.raises(ValueError, match="lambda: iter"):
        plain().fit([(X, Y), (X, Y)], None)


def test_sparse_targets_are_refused():
    with pytest.raises(ValueError, match="toarray"):
        plain().fit(X, sp.csr_array(Y[:, None]))


def test_members_without_rows_are_named():
    with pytest.raises(ValueError, match="member 0 has no rows"):
        member_coefficients(X, Y, [[0, 1], [2]], [[], [1, 2]])
    assert member_coefficients(X, Y, ([j] for j in range(3)))[0].shape == (3, 6)
