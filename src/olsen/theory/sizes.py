r"""The best size of members at finite n and p: for a number of members, and for a budget.

A budget is a number of parameters, :math:`k m`, or of operations, :math:`n p^2 + k m^3/3`: one
Gram matrix that all members share, and a factorisation for each.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ._arguments import LETTERS, Counts, Floats, letters, require, require_choice, scalar
from .finite import DESIGNS, expected_risk

BUDGETS = ("parameters", "operations")


class Shape(NamedTuple):
    """Numbers of members and of columns per member, and the expected risk of that ensemble."""

    k: Counts
    n_features: Counts
    risk: Floats


def optimal_n_features(
    n: int,
    p: int,
    sigma: float,
    *,
    k: float,
    n_samples: int | None = None,
    design: str = "independent",
) -> int:
    r"""The fixed size with the lowest `expected_risk`.

    .. math:: \arg\min_{1 \le m \le \min(p,\, \tau-2)} E R_k(m)

    Scans 65 sizes, then 65 sizes between the neighbours of the best, until all sizes in between
    have been compared.

    Status: exact risk; the scan is heuristic for curves with several minima. Scalars only.

    Examples
    --------
    >>> optimal_n_features(60, 48, 1.0, k=12)
    20
    """
    tau = n if n_samples is None else n_samples
    for name, value in (("n", n), ("p", p), ("sigma", sigma), ("k", k), ("n_samples", tau)):
        scalar(name, value)
    require_choice("design", design, DESIGNS)
    low = 1
    high = min(p, tau - 2)
    require(high >= 1, f"optimal_n_features needs min(p, n_samples - 2) >= 1; got {high}.")
    while True:
        sizes = np.unique(np.linspace(low, high, 65).round().astype(int))
        risks = expected_risk(n, p, sizes, sigma, k=k, n_samples=n_samples, design=design)
        best = int(np.argmin(risks))
        if len(sizes) == high - low + 1:
            return int(sizes[best])
        neighbours = sizes[max(best - 1, 0) : best + 2]
        low = int(neighbours[0])
        high = int(neighbours[-1])


def optimal_shape(
    n: int,
    p: int,
    sigma: "ArrayLike",
    *,
    budget: float,
    of: str = "parameters",
    design: str = "independent",
) -> Shape:
    r"""Few large or many small members: the best (k, m) for a budget of parameters or operations.

    .. math:: \arg\min_{1 \le m \le \min(p,\, n-2)} E R_{k(m)}(m), \qquad
              k(m) = \lfloor B/m \rfloor \;\text{ or }\; \lfloor 3(B - n p^2)/m^3 \rfloor

    Parameters
    ----------
    n, p : int
        Rows and columns of the data. Members use all rows.
    sigma : float
        Noise standard deviation; may be an array.
    budget : float
        B, the largest total of all members.
    of : {"parameters", "operations"}
        ``"parameters"``: coefficients of all members, :math:`k m`. ``"operations"``:
        multiplications, :math:`n p^2 + k m^3/3`, for the Gram matrix and a factorisation for each
        member.
    design : {"independent", "balanced"}
        As in `theory.expected_risk`.

    Returns
    -------
    shape : Shape
        A named tuple of arrays `k`, `n_features` and `risk`, in the shape of `sigma`.

    Notes
    -----
    Status: exact risk (`theory.expected_risk`), and all sizes are compared. The question is that of
    Ruben and Pehlevan (2023), who answer it in the limit for ridge members.

    Examples
    --------
    With much noise many small members are best, with little noise one large member:

    >>> shape = optimal_shape(100, 60, [0.1, 1.0, 3.0], budget=60)
    >>> shape.k, shape.n_features
    (array([ 1,  3, 15]), array([60, 20,  4]))
    """
    for name, value in (("n", n), ("p", p)):
        scalar(name, value)
    (sigma,) = letters(sigma=sigma)
    budget = scalar("budget", budget)
    require_choice("of", of, BUDGETS)
    require_choice("design", design, DESIGNS)
    sizes = np.arange(1, min(p, n - 2) + 1)
    spent_once = n * p**2 if of == "operations" else 0
    of_one_member = sizes**3.0 / 3 if of == "operations" else sizes
    k = np.floor((budget - spent_once) / of_one_member)
    k = np.minimum(k, LETTERS["k"].most)  # floats above are no counts
    is_affordable = k >= 1
    require(
        np.any(is_affordable),
        f"a budget of {budget:.6g} {of} leaves {budget - spent_once:.6g} to the members, which is"
        f" too few for one member of one column; n = {n} (at least 3) and p = {p}.",
    )
    sizes = sizes[is_affordable]
    k = k[is_affordable]
    risks = expected_risk(n, p, sizes, sigma[..., None], k=k, design=design)
    best = np.argmin(risks, axis=-1)
    lowest = np.take_along_axis(risks, best[..., None], axis=-1)[..., 0]
    return Shape(k[best].astype(int), sizes[best], lowest[()])
