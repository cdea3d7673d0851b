r"""The ensemble without each of its rows: all that intervals for new observations need, with the rows or without them.

Without row l the prediction at :math:`x_0` is :math:`\hat y(x_0) - o_l - (x_0 - \bar x)' c_l`, where :math:`c_l` are
the changes of the coefficients by that row and :math:`o_l` is the change at the means of all rows; row l itself is
missed by :math:`e_l`. Both ends of an interval are order statistics of these n predictions, :math:`\pm |e_l|`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution.threads import Sharing

__all__ = ["AT_A_TIME", "LeftOut", "about", "order_statistics", "rank_of", "steps"]

Array = NDArray[np.float64]
AT_A_TIME = 1 << 22  # bytes of predictions of a thread


@dataclass(frozen=True)
class LeftOut:
    """What every row leaves behind when it goes, in the users' units of y.

    Parameters
    ----------
    residual : ndarray of shape (n, q)
        Leave-one-out residuals of the ensemble.
    offset : ndarray of shape (n, q)
        Change of the prediction at the means of all rows.
    centre : ndarray of shape (p,)
        These means, in units of `unit`.
    unit : float
        That X is divided by.
    changes : ndarray of shape (q, p, n) or None
        Of the coefficients; None where there was no room for them, and only the plain jackknife can be had.
    """

    residual: Array
    offset: Array
    centre: Array
    unit: float
    changes: Array | None = None

    def interval(self, X: Any, prediction: Array, coverage: float, plus: bool, sharing: Sharing) -> Array:
        """Lower and upper ends, shape (rows, q, 2), for new rows X with their predictions of shape (rows, q).

        Ranks are ceil(coverage (n + 1)) of n; where that exceeds n the interval is the whole line.
        """
        n = len(self.residual)
        rank = rank_of(coverage, n)
        out = np.empty((*prediction.shape, 2))
        if plus and rank <= n:
            self._jackknife_plus(X, prediction, rank, out, sharing)
            return out
        width = np.abs(self.residual)
        half = np.partition(width, rank - 1, axis=0)[rank - 1] if rank <= n else np.inf
        out[..., 0], out[..., 1] = prediction - half, prediction + half
        return out

    def _jackknife_plus(self, X: Any, prediction: Array, rank: int, out: Array, sharing: Sharing) -> None:
        assert self.changes is not None
        q, n, changes = self.residual.shape[1], len(self.residual), self.changes
        for here in steps(X.shape[0], 8.0 * n * q, 8 * AT_A_TIME):
            new = about(X[here], self.centre, self.unit)
            change = np.empty((q, len(new), n))

            def work(start: int, stop: int, new: Array = new, change: Array = change) -> None:
                np.matmul(new[start:stop], changes, out=change[:, start:stop])

            sharing.quiet()(work, len(new), chunk=max(1, -(-len(new) // 8)))
            order_statistics(change, prediction[here], self, rank, out[here], sharing)


def rank_of(coverage: float, n: int) -> int:
    """Of the order statistic that holds new observations with this probability."""
    return max(1, math.ceil(coverage * (n + 1) - 1e-9))


def about(X: Any, centre: Array, unit: float) -> Array:
    """New rows about the means of the training rows, in their units, as a dense array."""
    dense = X.toarray() if sp.issparse(X) else X
    return np.asarray(dense / unit - centre, dtype=np.float64)


def steps(count: int, bytes_each: float, room: float) -> list[slice]:
    """Slices of range(count) of which none takes more room, unless it is a single one."""
    step = int(max(1.0, min(float(count), room // max(1.0, bytes_each))))
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def order_statistics(change: Array, prediction: Array, left: LeftOut, rank: int, out: Array, sharing: Sharing) -> None:
    """Ends of the intervals, (new, q, 2), from changes of the predictions by each row, (q, new, n)."""
    q, count, n = change.shape
    width, offset = np.abs(left.residual).T, left.offset.T

    def work(start: int, stop: int) -> None:
        for here in steps(stop - start, 8.0 * n, AT_A_TIME / 4):
            here = slice(start + here.start, start + here.stop)
            for t in range(q):
                without = prediction[here, t, None] - offset[t] - change[t, here]
                out[here, t, 0] = np.partition(without - width[t], n - rank, axis=1)[:, n - rank]
                without += width[t]
                without.partition(rank - 1, axis=1)
                out[here, t, 1] = without[:, rank - 1]

    sharing.quiet()(work, count, chunk=max(1, -(-count // 8)))
