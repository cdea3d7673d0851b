r"""What the arguments of this package may be, checked once at the public functions.

A letter means one thing in the whole package, so `LETTERS` says what each may be. Counts are whole: rows, columns,
members. Means of counts are not: the rows two members share by default, the columns that coin flips expect. In
formulas that are asymptotic and know the rows only as a divisor, `n` may be any positive number (`ROWS_OF_A_LIMIT`).

Numbers outside :math:`[10^{-50}, 10^{50}]` are refused, zero and documented infinities aside. The formulas form
products up to :math:`\gamma^2\sigma^4 \le 10^{300}`, so inside it nothing overflows to ``inf - inf`` or ``0 * inf``,
and a problem that needs more can be stated in other units.

Arguments are NumPy's `ArrayLike`: numbers, sequences, arrays. A result of shape () comes as `np.float64`, the scalar
with an array's methods, as from any ufunc.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = NDArray[np.int64]

LEAST, MOST, MOST_COUNTED = 1e-50, 1e50, 2.0**53  # up to the last, floating-point numbers count in ones


class Letter(NamedTuple):
    """A real interval, or the whole numbers in it, and one more value (`also`); `way_out` ends the message."""

    words: str
    least: float = 0.0
    most: float = MOST
    whole: bool = False
    also: float = np.nan
    way_out: str = ""


def _count(what: str, least: float = 1.0, also: float = np.nan, way_out: str = "") -> Letter:
    return Letter(f"a whole number of {what}", least, MOST_COUNTED, True, also, way_out)


ROWS = _count("rows")
ROWS_OF_A_LIMIT = Letter("a number of rows", LEAST)
SPREAD = Letter("a standard deviation")
PROBABILITY = Letter("a probability", most=1.0)
EXPECTED_COLUMNS = Letter("a number of columns")
LETTERS = {
    "alpha": Letter("a fraction of the columns, n_features / p", most=1.0),
    "gamma": Letter("p / n, positive", LEAST),
    "sigma": SPREAD,
    "k": _count("members (inf for the large ensemble)", also=np.inf),
    "eta": Letter("a fraction of the rows, n_samples / n", LEAST, 1.0),
    "mu": Letter("a scale", -MOST),
    "lam": Letter("lambda / n"),
    "excess": Letter("a relative excess, positive", LEAST),
    "n": ROWS,
    "p": _count("columns"),
    "n_features": _count("columns"),
    "n_samples": ROWS,
    "overlap": _count("shared columns", 0.0, way_out="theory.expected_risk averages over random overlaps."),
    "left_out": Letter("a sum of squares"),
    "shared_rows": Letter("a number (or mean number) of shared rows"),
    "beta_norm": Letter("a norm"),
    "risk": Letter("a risk (inf at the interpolation peak)", also=np.inf),
    "shrinkage": Letter("a finite number", -MOST),
    "beta": Letter("finite numbers", -MOST),
    "penalty": Letter("a penalty, zero or", LEAST, also=0.0),
    "variances": Letter("variances, zero or", LEAST, also=0.0),
    "eigenvalues": Letter("variances, zero or", LEAST, also=0.0),
    "probabilities": PROBABILITY,
}


def letters(function: str, /, **values: ArrayLike) -> tuple[Floats, ...]:
    """Each argument as a float array, ready to broadcast, after a look at what `LETTERS` says of its name."""
    return tuple(checked(function, name, value, LETTERS[name]) for name, value in values.items())


def checked(function: str, name: str, value: ArrayLike, letter: Letter) -> Floats:
    """`value` as a float array; an error that names `function`, `name` and the first wrong value otherwise."""
    numbers = as_numbers(function, name, value)
    fine = (numbers >= letter.least) & (numbers <= letter.most) & (not letter.whole or np.floor(numbers) == numbers)
    fine |= numbers == letter.also
    if not np.all(fine):
        words = f"{letter.words}, from {letter.least:g} to {letter.most:g}"
        raise ValueError(f"{function}: {name} must be {words}; got {float(numbers[~fine][0])!r}. {letter.way_out}")
    return numbers


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
    :math:`\Sigma`, so that units do not matter, and up to :math:`\varepsilon = p(p+2)\,2^{-52}`: no eigenvalue may be
    below :math:`-\varepsilon`, 2e-12 for a hundred columns, which computed eigenvalues of a semidefinite :math:`H`
    never are. The matrix is then used as it was given.

    A column of variance zero must have no covariance with any other.
    """
    Sigma = as_numbers(function, "Sigma", Sigma)
    square = Sigma.ndim == 2 and Sigma.shape[0] == Sigma.shape[1]
    require(
        Sigma.size > 0 and (Sigma.ndim == 1 or square),
        f"{function}: Sigma must be p x p (or its diagonal), of at least one column; got shape {Sigma.shape}.",
    )
    checked(function, "the diagonal of Sigma", np.diag(Sigma) if square else Sigma, LETTERS["variances"])
    if square:
        require(np.isfinite(Sigma), f"{function}: Sigma must be finite; got nan or infinite covariances.")
        _require_semidefinite(function, Sigma)
    return Sigma


def _require_semidefinite(function: str, Sigma: Floats) -> None:
    p, deviation = len(Sigma), np.sqrt(np.diag(Sigma))
    scale = 1 / np.where(deviation > 0, deviation, 1.0)
    correlation, rounding = Sigma * scale * scale[:, None], p * (p + 2) * np.finfo(float).eps
    apart = np.abs(correlation - correlation.T)
    i, j = np.unravel_index(np.argmax(apart), apart.shape)
    require(
        apart[i, j] <= rounding,
        f"{function}: Sigma must be symmetric; got {Sigma[i, j]:.6g} at [{i}, {j}] and {Sigma[j, i]:.6g} at "
        f"[{j}, {i}]. Give (Sigma + Sigma.T) / 2 if that is rounding.",
    )
    least = float(np.linalg.eigvalsh(correlation)[0])
    require(
        least >= -rounding and not np.any(correlation[deviation == 0]),
        f"{function}: Sigma must be a covariance, positive semidefinite; got one whose correlations have the "
        f"eigenvalue {least:.6g}. Check its signs and entries, or shrink it towards its diagonal.",
    )
