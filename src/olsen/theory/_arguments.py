r"""What the arguments of this package may be, checked once at the public doors; what lies behind them checks nothing.

A letter means one thing in the whole package, so `LETTERS` says what each may be. Counts are whole: rows, columns,
members. Means of counts are not: the rows two members share by default, the columns that coin flips expect. In
formulas that are asymptotic and know the rows only as a divisor, `n` may be any positive number (`ROWS_OF_A_LIMIT`).

Numbers outside :math:`[10^{-50}, 10^{50}]` are refused, zero and documented infinities aside. The formulas form
products up to :math:`\gamma^2\sigma^4 \le 10^{300}`, so inside it nothing overflows to ``inf - inf`` or ``0 * inf``,
and a problem that needs more can be stated in other units.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ._types import Floats

LEAST, MOST = 1e-50, 1e50
MOST_COUNTED = 2.0**53  # up to here floating-point numbers count in ones


class RangeError(ValueError, OverflowError):
    """An argument that is meaningful, but beyond what double precision can compute with."""


class Letter(NamedTuple):
    """A real interval, or the whole numbers in it, and one more value (`also`); `way_out` ends the message."""

    words: str
    least: float = 0.0
    most: float = MOST
    whole: bool = False
    also: float = np.nan
    way_out: str = ""

    def allows(self, value: float) -> bool:
        inside = self.least <= value <= self.most and (not self.whole or value.is_integer())
        return inside or value == self.also

    def each_allowed(self, values: Floats) -> bool | np.bool_:
        inside = (values >= self.least) & (values <= self.most) & (not self.whole or np.floor(values) == values)
        return np.all(inside | (values == self.also))

    def is_a_matter_of_range(self, value: float) -> bool:
        """Whether only the size of the number is wrong."""
        too_large = (
            self.most in (MOST, MOST_COUNTED) and MOST_COUNTED < abs(value) < np.inf and (value > 0 or self.least < 0)
        )
        return too_large or 0 < value < self.least == LEAST


PROBABILITY = Letter("a probability, in [0, 1]", most=1.0)
SPREAD = Letter("a standard deviation, finite and not negative")
LENGTH = Letter("a norm, finite and not negative")
ENERGY = Letter("a sum of squares, finite and not negative")
REAL = Letter("a finite number", least=-MOST)
PENALTY = Letter("a penalty, finite and not negative", least=LEAST, also=0.0)
ROWS = Letter("a whole number of rows, at least 1", least=1.0, most=MOST_COUNTED, whole=True)
ROWS_OF_A_LIMIT = Letter("a number of rows, positive and finite", least=LEAST)
MEAN_COUNT = Letter("a number (or mean number) of shared rows or columns, finite and not negative")
EXPECTED_COLUMNS = Letter("a number of columns, finite and not negative")
COLUMNS = Letter("a whole number of columns, at least 1", least=1.0, most=MOST_COUNTED, whole=True)
VARIANCE = Letter("a variance, finite and not negative", least=LEAST, also=0.0)

LETTERS = {
    "alpha": Letter("a fraction of the columns, in [0, 1]", most=1.0, way_out="alpha = n_features / p."),
    "gamma": Letter("p / n, positive and finite", least=LEAST),
    "sigma": SPREAD,
    "k": Letter(
        "a whole number of members, at least 1 (inf for the large ensemble)",
        least=1.0, most=MOST_COUNTED, whole=True, also=np.inf,
    ),
    "eta": Letter("a fraction of the rows, in (0, 1]", least=LEAST, most=1.0, way_out="eta = n_samples / n."),
    "mu": Letter("a scale, a finite number", least=-MOST),
    "lam": Letter("lambda / n, finite and not negative"),
    "excess": Letter("a relative excess, positive and finite", least=LEAST),
    "n": ROWS,
    "p": COLUMNS,
    "n_features": COLUMNS,
    "n_samples": ROWS,
    "overlap": Letter(
        "a whole number of shared columns, not negative", most=MOST_COUNTED, whole=True,
        way_out="theory.expected_risk averages over random overlaps.",
    ),
    "left_out": ENERGY,
    "shared_rows": MEAN_COUNT,
    "shared_features": MEAN_COUNT,
    "beta_norm": LENGTH,
    "risk": Letter("a risk, not negative (inf at the interpolation peak)", also=np.inf),
    "shrinkage": REAL,
    "beta": REAL,
    "penalty": PENALTY,
    "variances": VARIANCE,
    "eigenvalues": VARIANCE,
    "probabilities": PROBABILITY,
    "spread": SPREAD,
    "q": Letter(
        "an exponent, from 0 (uniform) to 50", most=50.0,
        way_out="Larger ones would take the largest coefficients and nothing else.",
    ),
    "size": Letter("a number of expected columns, positive and finite", least=LEAST),
}  # fmt: skip


def letters(function: str, /, **values: ArrayLike) -> tuple[Floats, ...]:
    """Each argument as a float array, ready to broadcast, after a look at what `LETTERS` says of its name."""
    return tuple(checked(function, name, value, LETTERS[name]) for name, value in values.items())


def checked(function: str, name: str, value: ArrayLike, letter: Letter) -> Floats:
    """`value` as a float array; an error that names `function`, `name` and the first wrong value otherwise."""
    numbers = as_numbers(function, name, value)
    fine = letter.allows(float(numbers)) if numbers.ndim == 0 else letter.each_allowed(numbers)
    if not fine:
        wrong = next(number for number in numbers.ravel().tolist() if not letter.allows(number))
        _refuse(function, name, wrong, letter)
    return numbers


def _refuse(function: str, name: str, wrong: float, letter: Letter) -> None:
    if letter.is_a_matter_of_range(wrong):
        low, high = (f"{bound:.6g}" for bound in (letter.least, letter.most))
        raise RangeError(
            f"{function}: {name} must be {letter.words}; got {wrong!r}, where formulas lose digits. From {low} to "
            f"{high} they keep them: use other units, or the limit."
        )
    raise ValueError(f"{function}: {name} must be {letter.words}; got {wrong!r}. {letter.way_out}".rstrip())


def as_numbers(function: str, name: str, value: ArrayLike) -> Floats:
    """`value` as a float array; a TypeError for what is not made of real numbers."""
    given = np.asarray(value)
    if given.dtype.kind in "biuf":
        return given.astype(float, copy=False)
    try:
        if given.dtype.kind != "O" or any(item is None for item in given.ravel()):
            raise TypeError
        return given.astype(float)  # objects that know how to be floats, as fractions do
    except (TypeError, ValueError):
        raise TypeError(f"{function}: {name} must be a real number or an array of them; got {value!r}.") from None


def scalar(function: str, name: str, value: ArrayLike, letter: Letter | None = None) -> float:
    """One number, checked."""
    numbers = checked(function, name, value, letter or LETTERS[name])
    require(numbers.ndim == 0, f"{function}: {name} must be one number; got an array of shape {numbers.shape}.")
    return float(numbers)


def require(condition: ArrayLike, message: str) -> None:
    """Raise ``ValueError(message)`` unless `condition` holds everywhere."""
    if not np.all(condition):
        raise ValueError(message)


def require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise unless `value` is one of the words."""
    require(isinstance(value, str) and value in choices, f"{name} must be one of {choices}; got {value!r}.")


def covariance(function: str, Sigma: ArrayLike) -> Floats:
    r"""A covariance matrix, or the vector of its diagonal, as floats: finite, symmetric, positive semidefinite.

    The last two are judged on the correlations :math:`H = D^{-1/2}\Sigma D^{-1/2}`, where :math:`D` is the diagonal of
    :math:`\Sigma`, so that units do not matter, and up to :math:`\varepsilon = p(p+2)\,2^{-52}`. Cholesky factorisation
    of :math:`H + \varepsilon I` has a backward error :math:`E`, :math:`\|E\|_2 \le p\gamma_{p+1}(1+\varepsilon)/
    (1-\gamma_{p+1})` with :math:`\gamma_{p+1} \approx (p+1)2^{-53}` (Higham, *Accuracy and Stability of Numerical
    Algorithms*, theorems 10.3 and 10.7), about half of :math:`\varepsilon`. Hence it succeeds for every semidefinite
    :math:`H`, and where it succeeds no eigenvalue of :math:`H` is below :math:`-2\varepsilon`, 5e-12 for a hundred
    columns. The matrix is then used as it was given.

    A column of variance zero must have no covariance with any other.
    """
    Sigma = as_numbers(function, "Sigma", Sigma)
    require(
        Sigma.ndim == 1 or (Sigma.ndim == 2 and Sigma.shape[0] == Sigma.shape[1]),
        f"{function}: Sigma must be p x p (or its diagonal); got shape {Sigma.shape}.",
    )
    require(Sigma.size > 0, f"{function}: Sigma must have at least one column; got shape {Sigma.shape}.")
    if Sigma.ndim == 1:
        return checked(function, "Sigma (a diagonal)", Sigma, VARIANCE)
    checked(function, "the diagonal of Sigma", np.diag(Sigma), VARIANCE)
    require(np.isfinite(Sigma), f"{function}: Sigma must be finite; got nan or infinite covariances.")
    _require_semidefinite(function, Sigma)
    return Sigma


def _require_semidefinite(function: str, Sigma: Floats) -> None:
    p = len(Sigma)
    rounding = p * (p + 2) * np.finfo(float).eps
    deviation = np.sqrt(np.diag(Sigma))
    scale = 1 / np.where(deviation > 0, deviation, 1.0)
    correlation = Sigma * scale
    correlation *= scale[:, None]
    if not np.array_equal(Sigma, Sigma.T):
        _require_symmetric(function, Sigma, np.abs(correlation - correlation.T), rounding)
    alone = deviation == 0
    require(
        not np.any(correlation[alone]),
        f"{function}: Sigma must be positive semidefinite; columns {np.flatnonzero(alone).tolist()} have variance 0 "
        "and yet covariances. Remove them.",
    )
    correlation.flat[:: p + 1] += rounding
    try:
        np.linalg.cholesky(correlation)
    except np.linalg.LinAlgError:
        least = float(np.linalg.eigvalsh(correlation)[0]) - rounding
        raise ValueError(
            f"{function}: Sigma must be a covariance, positive semidefinite; got one whose correlations have the "
            f"eigenvalue {least:.6g}. Check its signs and entries, or shrink it towards its diagonal."
        ) from None


def _require_symmetric(function: str, Sigma: Floats, apart: Floats, rounding: float) -> None:
    i, j = (int(index) for index in np.unravel_index(np.argmax(apart), apart.shape))
    require(
        apart[i, j] <= rounding,
        f"{function}: Sigma must be symmetric; got {Sigma[i, j]:.6g} at [{i}, {j}] and {Sigma[j, i]:.6g} at "
        f"[{j}, {i}]. Give (Sigma + Sigma.T) / 2 if that is rounding.",
    )
