"""Nested paths: every size of a member at once, against refits of each."""

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from loops import case
from olsen import member_coefficients
from olsen._data.rows import RowData
from olsen._members.path import PathData, prefix_predictions, prefix_residuals
from random_problems import random_problem

CASES = {
    "plain": {"n": 40, "p": 12},
    "more columns than rows": {"n": 18, "p": 50},
    "row subset": {"n": 50, "p": 15, "rows": 30},
}


def problem_of(seed, n, p, *, rows=None, fit_intercept=True, weighted=False, q=2):
    X, Y = random_problem(seed, n=n, p=p, q=q)
    rng = np.random.default_rng(seed)
    weight = rng.uniform(0.3, 2.0, n) if weighted else None
    chosen = None if rows is None else np.sort(rng.permutation(n)[:rows])
    order = rng.permutation(p)
    if chosen is not None:
        X[chosen, order[2]] = (
            0.7  # a column that is constant on the rows of the member, not on others
        )
    return RowData(X, Y, weight, fit_intercept), chosen, order


def refit_without_each_row(problem, columns, rows):
    """Brute force: residual of every row under members refitted without it."""
    n, q = problem.Y.shape
    member_rows = np.arange(n) if rows is None else rows
    out = np.empty((n, q))
    for row in range(n):
        other_rows = [member_rows[member_rows != row]]
        for t in range(q):
            coef, intercept = member_coefficients(
                problem.X,
                problem.Y[:, t],
                [columns],
                other_rows,
                sample_weight=problem.weight,
                fit_intercept=problem.fit_intercept,
                solver="orthogonal",
            )
            out[row, t] = problem.Y[row, t] - problem.X[row] @ coef[0] - intercept[0]
    return out


def every_case(seed):
    """All kinds of members, with and without intercept and weights."""
    for name, fit_intercept, weighted in product(CASES, [True, False], [True, False]):
        with case(name, f"intercept {fit_intercept}", f"weights {weighted}"):
            yield problem_of(seed, **CASES[name], fit_intercept=fit_intercept, weighted=weighted)


def test_leave_one_out_of_every_size_equals_refits(seed):
    sizes = np.array([1, 4, 9, 12])
    for problem, rows, order in every_case(seed):
        expected = [refit_without_each_row(problem, order[:size], rows) for size in sizes]
        for shared, path_rows in product(
            (True, False), (rows, None)
        ):  # rows of one member, or of all
            data = PathData.from_problem(
                problem, shared=shared, rows=rows if path_rows is None else None
            )
            assert_allclose(
                prefix_residuals(data, order, sizes, path_rows), expected, rtol=1e-8, atol=1e-8
            )


def test_coefficients_of_every_size_equal_members(seed):
    sizes = np.array([1, 3, 8, 12])
    for problem, rows, order in every_case(seed):
        data = PathData.from_problem(problem, shared=rows is None)
        at = np.eye(problem.shape[1] + 1)[:, 1:]
        coefs = prefix_predictions(data, at, order, sizes, rows)
        coefs = coefs[:, 1:] - coefs[:, :1]
        for (s, size), t in product(enumerate(sizes), range(2)):
            coef, _ = member_coefficients(
                problem.X,
                problem.Y[:, t],
                [order[:size]],
                None if rows is None else [rows],
                sample_weight=problem.weight,
                fit_intercept=problem.fit_intercept,
            )
            assert_allclose(coefs[s, :, t], coef[0], rtol=1e-8, atol=1e-9)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_columns_that_add_no_rank_change_nothing(seed):
    """Fitted values are unchanged by duplicated, constant and summed columns along the path."""
    rng = np.random.default_rng(seed)
    base = rng.standard_normal((30, 6))
    Y = rng.standard_normal((30, 1))
    dependent = np.column_stack([base[:, 0], np.full(30, 2.0), base[:, 1] - 3 * base[:, 2]])
    problem = RowData(np.column_stack([base, dependent]), Y)
    order = np.array([0, 6, 1, 7, 2, 8, 3, 4, 5])  # dependent columns come late
    with_dependent = prefix_residuals(PathData.from_problem(problem), order, np.arange(1, 10))
    plain = prefix_residuals(PathData.from_problem(RowData(base, Y)), np.arange(6), np.arange(1, 7))
    assert_allclose(with_dependent, plain[[0, 0, 1, 1, 2, 2, 3, 4, 5]], atol=1e-8)


def test_nearly_collinear_columns_and_exactly_fitted_rows(seed):
    """The former are as accurate as refits; a column that is nonzero in one row only makes that
    row's leverage one.
    """
    problem, _, order = problem_of(seed, 40, 10)
    problem.X[:, 4] = problem.X[:, 3] + 1e-6 * problem.X[:, 4]
    sizes = np.array([5, 10])
    expected = [refit_without_each_row(problem, order[:size], None) for size in sizes]
    assert_allclose(
        prefix_residuals(PathData.from_problem(problem), order, sizes),
        expected,
        rtol=1e-7,
        atol=1e-7,
    )
    problem, _, _ = problem_of(seed, 40, 10)
    problem.X[:, 3] = np.arange(40) == 7
    residuals = prefix_residuals(
        PathData.from_problem(problem), np.arange(10), np.array([1, 2, 3, 4, 5])
    )
    assert np.isfinite(residuals).all()
    assert_allclose(residuals[3, 7], residuals[2, 7])
