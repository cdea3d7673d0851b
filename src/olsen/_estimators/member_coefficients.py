"""The members themselves, for researchers: given subsets in, coefficients out, nothing drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_sample_weight, check_X_y

from .. import _members
from .._execution.threads import Sharing
from ..subsets import Subsets
from .inputs import check_arguments, item_numbers, refuse_text_columns

__all__ = ["member_coefficients"]


def member_coefficients(
    X: Any,
    y: ArrayLike,
    feature_subsets: Sequence[ArrayLike] | Subsets,
    sample_subsets: Sequence[ArrayLike] | Subsets | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    fit_intercept: bool = True,
    solver: str = "auto",
    n_threads: int = 1,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    r"""Least-squares coefficients of given members.

    .. math:: b_i = S_i \, (T_i^\top X S_i)^{+} \, T_i^\top y

    Status: exact. Members with fewer rows than columns get the solution of minimum norm.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Data.
    y : array-like of shape (n_samples,)
        Target.
    feature_subsets : sequence of k index arrays, or Subsets
        Columns of every member, without repetition.
    sample_subsets : sequence of k index arrays, or Subsets, default=None
        Rows of every member; None means all rows for all.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights inside the least squares; rows of weight zero are left out of every member.
    fit_intercept : bool, default=True
        Whether every member fits an intercept.
    solver : str, default="auto"
        As in :class:`OLSEnsembleRegressor`.
    n_threads : int, default=1
        Threads over members.

    Returns
    -------
    coef : ndarray of shape (k, n_features)
        Zero outside each member's columns.
    intercept : ndarray of shape (k,)
        Zeros without intercept.

    Examples
    --------
    >>> import numpy as np
    >>> from olsen import member_coefficients
    >>> X = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0], [3.0, 1.0]])
    >>> coef, intercept = member_coefficients(X, X @ [2.0, -1.0] + 5.0, [[0, 1], [0]])
    >>> coef.round(6).tolist()
    [[2.0, -1.0], [2.210526, 0.0]]
    """
    check_arguments("member_coefficients", solver=solver, fit_intercept=fit_intercept, n_threads=n_threads)
    refuse_text_columns(X)
    X, y = check_X_y(X, y, accept_sparse=["csc", "csr"], dtype=[np.float64, np.float32], y_numeric=True)
    n, p = X.shape
    features = _as_subsets(feature_subsets, p)
    samples = None if sample_subsets is None else _as_subsets(sample_subsets, n)
    if samples is not None and len(samples) != len(features):
        raise ValueError(f"{len(features)} feature subsets but {len(samples)} sample subsets; every member needs both.")
    if samples is not None and samples.sizes.min() == 0:
        raise ValueError(f"member {int(np.argmin(samples.sizes))} has no rows to be fitted to.")
    weight = None
    if sample_weight is not None:
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        samples, weight = _leave_out_weightless(samples, weight, len(features))
    data = sp.csc_array(X) if sp.issparse(X) else X
    Y = np.asarray(y, dtype=np.float64).reshape(-1, 1)
    problem = _members.Problem(data, Y, weight, fit_intercept)
    solution = _members.solve(problem, features, samples, solver=solver, sharing=Sharing(n_threads))
    coef = np.zeros((len(features), p))
    coef[np.repeat(np.arange(len(features)), features.sizes), features.indices] = solution.values[:, 0]
    return coef, solution.intercepts[:, 0]


member_coefficients.__module__ = "olsen"  # where users find it


def _as_subsets(given: Sequence[ArrayLike] | Subsets, n_items: int) -> Subsets:
    if isinstance(given, Subsets):
        return given
    given = list(given)
    if not given:
        raise ValueError("no members were given; every member is a list of the numbers of its columns (or rows).")
    return Subsets.from_lists([item_numbers(one, n_items) for one in given], n_items)


def _leave_out_weightless(
    samples: Subsets | None, weight: NDArray[np.float64], k: int
) -> tuple[Subsets | None, NDArray[np.float64]]:
    """Row subsets without rows of weight zero; weights of the rows that stay are positive."""
    positive = weight > 0
    if positive.all():
        return samples, weight
    if samples is None:
        rows = np.flatnonzero(positive)
        return Subsets.from_lists([rows] * k, len(weight)), weight
    return Subsets.from_lists([rows[positive[rows]] for rows in samples], len(weight)), weight
