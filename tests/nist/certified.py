"""Least-squares problems whose exact answer is known: NIST's sets, and as many of our own in their
image.

NIST certifies fifteen digits. Ours are certified by rational arithmetic: entries of X and y are
binary fractions, so the normal equations are solved in integers, without any rounding. The families
follow what makes NIST's sets hard: polynomials (Wampler, Filip), trends that run together
(Longley), numbers far from zero (NumAcc, Lottery), group means far from zero (SmLs), columns in
different units, nearly dependent columns, and easy ones that must not be spoilt.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).parent
SETS = sorted(path.stem for path in HERE.glob("*.json"))

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Certified:
    """Data of a problem, and the exact coefficients, the intercept first if there is one."""

    name: str
    X: Array
    y: Array
    intercept: bool
    exact: list[Fraction]

    def shuffled(self, order: NDArray[np.int64]) -> Certified:
        """This problem with its rows in another order: the same answer, other rounding."""
        return Certified(self.name, self.X[order], self.y[order], self.intercept, self.exact)


def nist(name: str) -> Certified:
    """One of NIST's sets, with NIST's digits."""
    certified = json.loads((HERE / f"{name}.json").read_text())
    table = np.loadtxt(HERE / f"{name}.csv", delimiter=",", skiprows=1, ndmin=2)
    X = table[:, :-1]
    y = table[:, -1]
    if degree := certified["design"].get("polynomial_degree"):
        X = X ** np.arange(1, degree + 1)
    exact = [Fraction(b["estimate"]) for b in certified["parameters"]]
    return Certified(name, X, y, certified["design"]["intercept"], exact)


def certify(name: str, X: Array, y: Array, intercept: bool) -> Certified:
    """A problem of our own, solved in rational arithmetic."""
    X = np.asarray(X, dtype=np.float64)
    y = np.asarray(y, dtype=np.float64)
    return Certified(name, X, y, intercept, exact_least_squares(X, y, intercept))


def exact_least_squares(X: Array, y: Array, intercept: bool) -> list[Fraction]:
    """The least-squares coefficients of floating-point numbers, without rounding."""
    columns = [np.ones(len(y)), *X.T] if intercept else list(X.T)
    integer_columns = [_integers(column) for column in (*columns, y)]
    vectors = [integers for integers, _ in integer_columns]
    *design, target = vectors
    system = [[_dot(a, b) for b in design] + [_dot(a, target)] for a in design]
    solved = _solve_integers(system)
    *units, unit = [denominator for _, denominator in integer_columns]
    return [b * u / unit for b, u in zip(solved, units, strict=True)]


def _integers(column: Array) -> tuple[list[int], int]:
    """Numerators over the common denominator of a column."""
    fractions = [Fraction(float(value)) for value in column]
    common = max(f.denominator for f in fractions)  # powers of two, so the largest is common to all
    return [int(f * common) for f in fractions], common


def _dot(a: list[int], b: list[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _solve_integers(rows: list[list[int]]) -> list[Fraction]:
    """Solve the augmented system by Bareiss' elimination, in which every division is exact."""
    rows = [list(row) for row in rows]
    m = len(rows)
    previous = 1
    for k in range(m):
        if rows[k][k] == 0:
            raise ValueError("the columns of a certified problem must be independent")
        for i in range(k + 1, m):
            head = rows[i][k]
            rows[i] = [
                (rows[k][k] * a - head * b) // previous
                for a, b in zip(rows[i], rows[k], strict=True)
            ]
        previous = rows[k][k]
    solution = [Fraction(0)] * m
    for k in reversed(range(m)):
        solved_terms = sum((rows[k][j] * solution[j] for j in range(k + 1, m)), Fraction(0))
        solution[k] = (rows[k][m] - solved_terms) / rows[k][k]
    return solution


def polynomial(degree: int, rng: np.random.Generator) -> tuple[Array, Array, bool]:
    """Wampler's design: powers of 0 to 20, all coefficients one, plus whole noise of a size that
    grows as his did.
    """
    x = np.arange(21.0)
    X = x[:, None] ** np.arange(1, degree + 1)
    return (
        X,
        1 + X.sum(axis=1) + np.round(rng.standard_normal(21) * 10.0 ** rng.integers(0, 4)),
        True,
    )


def exact_polynomial(degree: int, rng: np.random.Generator) -> tuple[Array, Array, bool]:
    """Wampler's design without noise, as Wampler1 and 2."""
    X = np.arange(21.0)[:, None] ** np.arange(1, degree + 1)
    return X, 1 + X.sum(axis=1), True


def far_polynomial(degree: int, rng: np.random.Generator) -> tuple[Array, Array, bool]:
    """Filip's: powers of numbers between -9 and -3, targets of order one."""
    x = np.round(rng.uniform(-9, -3, 82), 3)
    return x[:, None] ** np.arange(1, degree + 1), np.round(rng.uniform(0.75, 0.93, 82), 4), True


def unit_polynomial(degree: int, rng: np.random.Generator) -> tuple[Array, Array, bool]:
    """Powers on [0, 1), the constant among the columns: nearly a Hilbert matrix."""
    return (
        (np.arange(31.0) / 32)[:, None] ** np.arange(degree + 1),
        np.round(rng.standard_normal(31), 3),
        False,
    )


def trends(grade: int, rng: np.random.Generator) -> tuple[Array, Array, bool]:
    """Longley's: whole series that rise with the year, closer to each other by a digit with every
    grade.
    """
    year = np.arange(1947.0, 1963.0)
    noise = 10.0 ** (6 - grade) * rng.standard_normal((16, 4))
    series = np.round(1000 * (year[:, None] - 1900) * np.array([3, 5, 7, 11]) + noise)
    return (
        np.column_stack([series, year]),
        np.round(60_000 + 500 * (year - 1947) + 300 * rng.standard_normal(16)),
        True,
    )


def offsets(grade: int, rng: np.random.Generator) -> tuple[Array, Array, bool]:
    """NumAcc's and Lottery's: whole numbers of one digit on top of 10**grade."""
    X = rng.integers(-9, 10, (30, 4)) + 10.0**grade
    return X, 10 * X[:, 0] - 3 * X[:, 1] + rng.integers(-9, 10, 30), True


def dependent(grade: int, rng: np.random.Generator) -> tuple[Array, Array, bool]:
    """A column that is the sum of the others up to one part in 10**grade."""
    Z = rng.integers(-99, 100, (40, 6)).astype(float)
    X = Z * 10.0**grade
    X[:, 5] = X[:, :5].sum(axis=1) + Z[:, 5]
    return X, rng.integers(-999, 1000, 40).astype(float), grade % 2 == 1


def groups(grade: int, rng: np.random.Generator) -> tuple[Array, Array, bool]:
    """SmLs: group means that differ by tenths on top of 10**grade."""
    group = np.repeat(np.arange(5), 9)
    noise = np.where(np.arange(45) % 2 == 1, 0.05, -0.05)
    return (
        (group[:, None] == np.arange(1, 5)).astype(float),
        10.0**grade + 0.2 + 0.1 * group + noise,
        True,
    )


def units(size: int, rng: np.random.Generator) -> tuple[Array, Array, bool]:
    """Independent columns in units from 1e-4 to 1e4."""
    X = rng.integers(-99, 100, (30 + 5 * size, size)) * 10.0 ** rng.integers(-4, 5, size)
    return X, rng.integers(-99, 100, len(X)).astype(float), size % 2 == 1


def easy(distance: int, rng: np.random.Generator) -> tuple[Array, Array, bool]:
    """Independent columns about some standard deviations from zero."""
    X = np.round(rng.standard_normal((50, 8)) + distance * rng.standard_normal(8), 3)
    return X, np.round(rng.standard_normal(50), 3), distance % 2 == 1


FAMILIES = {
    polynomial: range(3, 9),
    exact_polynomial: range(3, 11),
    far_polynomial: range(3, 11),
    unit_polynomial: range(3, 11),
    trends: range(1, 7),
    offsets: range(2, 10),
    dependent: range(1, 9),
    groups: range(2, 10),
    units: range(3, 11),
    easy: range(8),
}


def generated() -> Iterator[Certified]:
    """All problems of our own; the same in every run."""
    for number, (family, grades) in enumerate(FAMILIES.items()):
        for grade in grades:
            data = family(grade, np.random.default_rng((20260101, number, grade)))
            yield certify(f"{family.__name__} {grade}", *data)


def drawn(seed: int) -> Certified:
    """One problem that only this seed has."""
    rng = np.random.default_rng((seed, 1))
    family = list(FAMILIES)[rng.integers(len(FAMILIES))]
    grade = int(rng.choice(FAMILIES[family]))
    return certify(f"{family.__name__} {grade}, seed {seed}", *family(grade, rng))
