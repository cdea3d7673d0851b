"""Correct digits of olsen and of LAPACK on problems whose exact answer is known.

``python tests/nist/digits.py --out digits.md`` writes the table; ``tests/members/test_nist.py``
holds its claims.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from fractions import Fraction
from math import log10
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from olsen import OLSEnsembleRegressor

sys.path.insert(0, str(Path(__file__).parents[1]))
from nist.certified import SETS, Certified, generated, nist

MOST = 15.0  # what NIST certifies; the last bit of a double is beyond
# the order given and two others: rounding differs from order to order, the exact answer does not
ORDERS = 3


def digits(problem: Certified, coefficients: NDArray[np.float64]) -> float:
    """NIST's measure: -log10 of the relative error of the worst coefficient, at most 15 (LRE)."""
    worst = MOST
    for got, exact in zip(coefficients, problem.exact, strict=True):
        error = abs((Fraction(float(got)) if np.isfinite(got) else 0) - exact) / (abs(exact) or 1)
        if error:
            worst = min(worst, log10(error.denominator) - log10(error.numerator))
    return max(worst, 0.0)


def by_olsen(problem: Certified, solver: str = "auto") -> NDArray[np.float64]:
    """One member with all columns: plain least squares, through the public door."""
    with warnings.catch_warnings():
        # the sets have few rows
        warnings.filterwarnings("ignore", message="members have .* columns")
        model = OLSEnsembleRegressor(1, 1.0, fit_intercept=problem.intercept, solver=solver)
        model.fit(problem.X, problem.y)
    return np.r_[model.intercept_, model.coef_] if problem.intercept else model.coef_


def by_lapack(problem: Certified) -> NDArray[np.float64]:
    """LAPACK's QR: dgels on the columns of the problem and the constant."""
    A = np.column_stack([np.ones(len(problem.y)), problem.X]) if problem.intercept else problem.X
    _, solution, info = lapack.dgels(A, problem.y)
    assert info == 0
    return np.asarray(solution[: A.shape[1]])


def orders(problem: Certified) -> Iterator[Certified]:
    """The problem as it is given, then with its rows shuffled."""
    yield problem
    for seed in range(1, ORDERS):
        yield problem.shuffled(np.random.default_rng(seed).permutation(len(problem.y)))


def all_problems() -> list[Certified]:
    """NIST's sets and ours."""
    return [*map(nist, SETS), *generated()]


def table() -> str:
    """Digits by set, the rows as given, in Markdown; the worst of three orders of the rows in
    brackets.
    """
    lines = [
        "| set | rows x columns | olsen, auto | olsen, orthogonal | LAPACK dgels |",
        "|---|---|---|---|---|",
    ]
    for problem in all_problems():
        digits_by_order = [
            [digits(p, by_olsen(p)), digits(p, by_olsen(p, "orthogonal")), digits(p, by_lapack(p))]
            for p in orders(problem)
        ]
        cells = [
            f"{first:.1f} ({worst:.1f})"
            for first, worst in zip(
                digits_by_order[0], np.min(digits_by_order, axis=0), strict=True
            )
        ]
        shape = f"{problem.X.shape[0]} x {problem.X.shape[1]}{' + 1' if problem.intercept else ''}"
        lines.append(f"| {problem.name} | {shape} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table, and write it where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="Markdown file to write")
    out = parser.parse_args().out
    text = table()
    print(text)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text)


if __name__ == "__main__":
    main()
