r"""Allowed values of the arguments of this package, checked once at the public functions.

A letter means one thing in the whole package, so `LETTERS` has the allowed values of each. Counts
of rows, columns and members are whole numbers. Means of counts need not be: the mean number of
shared rows, the expected number of columns in a coin-flip subset. In asymptotic formulas in which
the rows are only a divisor, `n` may be any positive number (`ROWS_OF_A_LIMIT`).

Numbers outside :math:`[10^{-50}, 10^{50}]` are refused, zero and documented infinities aside. The
formulas form products up to :math:`\gamma^2\sigma^4 \le 10^{300}`, so nothing in that range
overflows to ``inf - inf`` or ``0 * inf``, and a problem beyond the range can be stated in other
units.

Arguments are NumPy's `ArrayLike`: numbers, sequences, arrays. Public functions annotate the name in
quotes, so that `help` shows the name and not the union behind it. A result of shape () comes as
`np.float64`, the scalar with an array's methods, as from any ufunc.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = NDArray[np.int64]

LEAST = 1e-50  # smallest magnitude of a positive argument
MOST = 1e50  # largest magnitude of an argument
MAX_COUNT = 2.0**53  # up to which every whole number is a floating-point number


class Letter(NamedTuple):
    """Allowed values of an argument: a real interval or the whole numbers in it, and one more value
    (`also`).

    `words` describe the argument in a message, and `way_out` ends the message.
    """

    words: str
    least: float = 0.0
    most: float = MOST
    whole: bool = False
    also: float = np.nan
    way_out: str = ""


def _count(unit: str, least: float = 1.0, also: float = np.nan, way_out: str = "") -> Letter:
    words = f"a whole number of {unit}"
    return Letter(words, least, MAX_COUNT, whole=True, also=also, way_out=way_out)


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
    "lam": Letter("lambda / n, zero or", LEAST, also=0.0),
    "excess": Letter("a relative excess, positive", LEAST),
    "n": ROWS,
    "p": _count("columns"),
    "n_features": _count("columns", 0.0),
    "n_subsets": _count("subsets, enough for a standard error", 4.0),
    "n_samples": ROWS,
    "overlap": _count(
        "shared columns", 0.0, way_out="theory.expected_risk averages over random overlaps."
    ),
    "left_out": Letter("a sum of squares"),
    "shared_rows": Letter("a number (or mean number) of shared rows"),
    "beta_norm": Letter("a norm"),
    "budget": Letter("a number of parameters or operations, positive", LEAST),
    "risk": Letter("a risk (inf at the interpolation peak)", also=np.inf),
    "shrinkage": Letter("a finite number", -MOST),
    "beta": Letter("finite numbers", -MOST),
    "penalty": Letter("a penalty, zero or", LEAST, also=0.0),
    "variances": Letter("variances, zero or", LEAST, also=0.0),
    "eigenvalues": Letter("variances, zero or", LEAST, also=0.0),
    "probabilities": PROBABILITY,
}


def letters(**values: ArrayLike) -> tuple[Floats, ...]:
    """Arguments as float arrays, ready to broadcast, each checked by the entry of its name in
    `LETTERS`.
    """
    return tuple(checked(name, value, LETTERS[name]) for name, value in values.items())


def checked(name: str, value: ArrayLike, letter: Letter) -> Floats:
    """`value` as a float array; an error names the argument and the first wrong value otherwise."""
    numbers = as_numbers(name, value)
    allowed = (numbers >= letter.least) & (numbers <= letter.most)
    if letter.whole:
        allowed &= np.floor(numbers) == numbers
    allowed |= numbers == letter.also
    if not np.all(allowed):
        bounds = f"from {letter.least:g} to {letter.most:g}"
        first_wrong = float(numbers[~allowed][0])
        raise ValueError(
            f"{name} must be {letter.words}, {bounds}; got {first_wrong!r}. {letter.way_out}"
        )
    return numbers


def as_numbers(name: str, value: ArrayLike) -> Floats:
    """`value` as a float array; a TypeError if it does not consist of real numbers."""
    array = np.asarray(value)
    if array.dtype.kind in "biuf":
        return array.astype(float, copy=False)
    try:
        if array.dtype.kind != "O" or None in array.ravel().tolist():
            raise TypeError
        return array.astype(float)  # objects that convert to floats, such as fractions
    except (TypeError, ValueError):
        raise TypeError(
            f"{name} must be a real number or an array of them; got {value!r}."
        ) from None


def scalar(name: str, value: ArrayLike, letter: Letter | None = None) -> float:
    """A single number, checked by `letter` or by the entry of its name in `LETTERS`."""
    numbers = checked(name, value, letter or LETTERS[name])
    if numbers.ndim:
        raise ValueError(f"{name} must be one number; got an array of shape {numbers.shape}.")
    return float(numbers)


def require(condition: ArrayLike, message: str) -> None:
    """Raise ``ValueError(message)`` unless `condition` holds everywhere."""
    if not np.all(condition):
        raise ValueError(message)


def require_at_most(bound_name: str, bound: Floats, **values: Floats) -> None:
    """Raise unless each value is at most `bound` everywhere."""
    for name, value in values.items():
        require(
            value <= bound,
            f"{name} ({np.max(value):.6g}) cannot exceed {bound_name} ({np.min(bound):.6g}).",
        )


def require_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise unless `value` is one of `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {choices}; got {value!r}.")


def covariance(Sigma: ArrayLike, name: str = "Sigma") -> Floats:
    r"""The covariance matrix, finite, symmetric and positive semidefinite, from itself or from its
    diagonal.

    Symmetry and semidefiniteness are checked on the correlations :math:`H = D^{-1/2}\Sigma
    D^{-1/2}`, where :math:`D` is the diagonal of :math:`\Sigma`, so that units do not matter, and
    up to :math:`\varepsilon = p(p+2)\,2^{-52}`: no eigenvalue may be below :math:`-\varepsilon`,
    2e-12 for a hundred columns, which computed eigenvalues of a semidefinite :math:`H` never are.
    The matrix itself is not changed.

    A column of variance zero must have no covariance with any other.
    """
    Sigma = as_numbers(name, Sigma)
    p = Sigma.shape[0] if Sigma.ndim else 0
    if p == 0 or Sigma.shape not in ((p,), (p, p)):
        raise ValueError(
            f"{name} must be p x p (or its diagonal), of at least one column; got shape"
            f" {Sigma.shape}."
        )
    diagonal = Sigma if Sigma.ndim == 1 else np.diag(Sigma)
    checked(f"the diagonal of {name}", diagonal, LETTERS["variances"])
    if Sigma.ndim == 1:
        return np.diag(Sigma)
    require(np.isfinite(Sigma), f"{name} must be finite; got nan or infinite covariances.")
    _require_semidefinite(Sigma, name)
    return Sigma


def _require_semidefinite(Sigma: Floats, name: str) -> None:
    """Raise unless the correlations are symmetric and semidefinite up to rounding."""
    p = len(Sigma)
    deviation = np.sqrt(np.diag(Sigma))
    is_constant = deviation == 0
    scale = 1 / np.where(is_constant, 1.0, deviation)
    H = Sigma * scale * scale[:, None]
    rounding = p * (p + 2) * np.finfo(float).eps
    asymmetry = np.abs(H - H.T)
    i, j = np.unravel_index(np.argmax(asymmetry), asymmetry.shape)
    if asymmetry[i, j] > rounding:
        raise ValueError(
            f"{name} must be symmetric; got {Sigma[i, j]:.6g} at [{i}, {j}] and"
            f" {Sigma[j, i]:.6g} at [{j}, {i}]. Give ({name} + {name}.T) / 2 if that is rounding."
        )
    smallest = float(np.linalg.eigvalsh(H)[0])
    if smallest < -rounding or np.any(H[is_constant]):
        raise ValueError(
            f"{name} must be a covariance, positive semidefinite; got one whose correlations have"
            f" the eigenvalue {smallest:.6g}. Check its signs and entries, or shrink it towards"
            " its diagonal."
        )
