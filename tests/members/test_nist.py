"""Digits on problems with certified answers: at or above LAPACK's QR, whatever the order of the
rows.
"""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from nist.certified import SETS, certify, drawn, exact_least_squares, generated, nist
from nist.digits import by_lapack, by_olsen, digits, orders
from olsen import member_coefficients

CERTIFIED = [nist(name) for name in SETS]
OURS = list(generated())
EXTENDED = np.finfo(np.longdouble).eps < np.finfo(np.float64).eps


def test_there_are_enough_problems():
    assert {"Longley", "NoInt1", "Norris", "Wampler1"} <= set(SETS)
    assert len({problem.name for problem in OURS}) >= 60


def test_our_certificates_agree_with_those_of_nist():
    """To the last of NIST's fifteen digits, of which the fifteenth is rounded."""
    for problem in CERTIFIED:
        exact = exact_least_squares(problem.X, problem.y, problem.intercept)
        for ours, theirs in zip(exact, problem.exact, strict=True):
            assert abs(ours - theirs) <= abs(theirs) * Fraction(1, 10**13), problem.name


def test_certificates_solve_the_normal_equations():
    for problem in OURS[::7]:
        A = [
            [Fraction(1)] * problem.intercept + [Fraction(v) for v in row]
            for row in problem.X.tolist()
        ]
        fits = [sum(map(Fraction.__mul__, row, problem.exact)) for row in A]
        residuals = [Fraction(t) - fit for t, fit in zip(problem.y.tolist(), fits, strict=True)]
        for column in zip(*A, strict=True):
            assert sum(map(Fraction.__mul__, column, residuals)) == 0


def test_digits_are_counted_as_nist_counts_them():
    problem = certify("line", np.arange(4.0)[:, None], 4 + 2 * np.arange(4.0), True)
    assert problem.exact == [4, 2]
    assert digits(problem, np.array([4.0, 2.0])) == 15
    assert digits(problem, np.array([4.0, 2.002])) == pytest.approx(3)
    assert digits(problem, np.array([4.04, 2.002])) == pytest.approx(2)
    assert digits(problem, np.array([-40.0, 2.0])) == 0


@pytest.mark.skipif(not EXTENDED, reason="refinement needs a long double wider than double")
def test_digits_at_or_above_lapack(seed):
    """Row by row of the table: every order of the rows is another draw of both programs' rounding;
    none is below.
    """
    for problem, solver in product([*CERTIFIED, *OURS, drawn(seed)], ["auto", "orthogonal"]):
        for ordered in orders(problem):
            assert digits(ordered, by_olsen(ordered, solver)) >= digits(
                ordered, by_lapack(ordered)
            ), (
                problem.name,
                solver,
            )


def test_trusted_gram_matrices_cost_five_digits_at_most():
    """A shared Gram matrix, or the member's own, that could cost more is not used."""
    for problem in CERTIFIED + OURS:
        (n, p) = problem.X.shape
        min_digits = digits(problem, by_lapack(problem)) - 5
        assert digits(problem, by_olsen(problem, "gram")) >= min_digits, problem.name
        options = {"fit_intercept": problem.intercept, "solver": "gram"}
        coef, intercept = member_coefficients(
            problem.X, problem.y, [range(p)], [range(n)], **options
        )
        assert (
            digits(problem, np.r_[intercept, coef[0]] if problem.intercept else coef[0])
            >= min_digits
        ), problem.name
