r"""Dropout as it is done to networks: stochastic gradients, each seen through fresh masks.

A step draws a batch of rows, cuts it into small groups T, draws M masks for each and follows the gradient of the mean
loss,

.. math:: g \propto \sum_T \sum_{i=1}^M S_{Ti} S_{Ti}' X_T' (X_T S_{Ti} S_{Ti}' b - y_T) , \qquad
          b \leftarrow b - \eta_t g .

Nothing here knows the expectation over masks. It is reached by averaging the iterates (Polyak and Ruppert), whose error
falls as one over the root of the number of masks whatever the step, and a run stops when the standard error of that
average, from the scatter of its blocks, is below `tol`.

Coordinates are :math:`\mathrm{diag}(G)^{1/2} A^{1/2} b`: columns in other units or kept more rarely move at one pace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._members import Problem
from .._moments.moments import weighted_mean
from .exact import Masks, column_blocks

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


class Run(NamedTuple):
    """What training gave."""

    coef: NDArray[np.float64]  # (p, q)
    n_iter: int
    losses: NDArray[np.float64]  # mean loss of each stretch of steps
    error: float  # standard error of the average, relative to its norm
    converged: bool


def train(
    problem: Problem,
    masks: Masks,
    *,
    batch_size: int,
    n_masks: int,
    learning_rate: float | None,
    max_iter: int,
    tol: float,
    seed: int,
    report: Callable[[int], None] | None = None,
) -> Run:
    """Minimise the expected loss by averaged stochastic gradients."""
    rng = np.random.Generator(np.random.SFC64(seed))
    scale, longest = _scales(problem, masks)
    n, batches = len(problem.Y), _batches(problem, scale, batch_size, rng)
    if learning_rate is None:
        # inverse of a bound on the mean squared Hessian over the mean Hessian: its mean, plus masks and rows
        top = _largest_eigenvalue(next(batches)[0].reshape(-1, len(scale)), rng)
        expected = masks.partner.max() * masks.inclusion.max() * top + 1.0
        learning_rate = float(1.0 / (expected + top / n_masks + (0.0 if n <= batch_size else longest / batch_size)))
    mean = _BlockMeans()
    z = np.zeros((len(scale), problem.Y.shape[1]))
    rows = n / -(-n // batch_size)  # of a batch, on average
    losses, loss, error, done = [], 0.0, np.inf, 0
    for done in range(1, max_iter + 1):
        x, y = next(batches)
        mask = _draw_masks(masks, len(x), n_masks, rng)
        value, gradient = _loss_and_gradient(x, y, mask, z, rows)
        # from 200 steps on the step size falls as 1 / sqrt(t); its mean bounds the bias of reshuffled rows
        z -= learning_rate / np.sqrt(1 + done / 200) * gradient
        loss += value
        if finished := mean.add(z):
            losses.append(loss / finished)
            loss = 0.0
            if not np.isfinite(losses[-1]) or losses[-1] > 1e6 * losses[0]:
                raise ValueError(
                    f"training diverged: the mean loss went from {losses[0]:.3g} to {losses[-1]:.3g} with a first step "
                    f"of {learning_rate:.3g}. Lower learning_rate, or leave it None to have it set from the data."
                )
            error = mean.relative_error()
            if report is not None:
                report(done)
            if error <= tol:
                break
    return Run(mean.average(z) * scale[:, None], done, np.array(losses), error, error <= tol)


def _loss_and_gradient(x: Array, y: Array, mask: Array, z: Array, n_rows: float) -> tuple[float, Array]:
    """Mean over rows and masks of the loss and of its gradient.

    Shapes: x (groups, rows, p), y (groups, rows, q), mask (groups, M, p), z (p, q).
    """
    groups, count, p = mask.shape
    seen = (mask[:, :, None, :] * z.T).reshape(groups, -1, p)  # (groups, M q, p): coefficients through each mask
    residual = seen @ x.transpose(0, 2, 1) - np.tile(y.transpose(0, 2, 1), (1, count, 1))
    gradient = (residual @ x).reshape(groups * count, -1, p)
    loss = np.vdot(residual, residual) / (count * n_rows)
    return loss, np.einsum("mp,mqp->pq", mask.reshape(-1, p), gradient) / (count * n_rows)


def _draw_masks(masks: Masks, groups: int, count: int, rng: np.random.Generator) -> Array:
    """Masks (groups, count, p), in pairs that avoid each other; every single one has the right probabilities.

    Coin flips compare u and u + 1/2 (mod 1) with the probability; masks of fixed size take the smallest and the largest
    of the same keys.
    """
    p, half = len(masks.inclusion), -(-count // 2)
    u = rng.random((groups, half, p), dtype=np.float32)
    if masks.size is None:
        other = u + np.float32(0.5)
        other -= other >= 1
        return (np.concatenate([u, other], axis=1)[:, :count] < masks.inclusion).astype(np.float64)
    mask = np.zeros((groups, 2 * half, p))
    order = np.argsort(u, axis=2)
    np.put_along_axis(mask[:, :half], order[..., : masks.size], 1.0, axis=2)
    np.put_along_axis(mask[:, half:], order[..., p - masks.size :], 1.0, axis=2)
    return mask[:, :count]


# Data


def _scales(problem: Problem, masks: Masks) -> tuple[Array, float]:
    """Factor (p,) from the coordinates of training to coefficients, zero for columns that cannot be learned.

    Also the largest expected squared length of a masked row, which bounds what a single row can do to a step.
    """
    n, p = problem.shape
    total = n if problem.weight is None else problem.weight.sum()
    scale, rows = np.zeros(p), np.zeros(n)
    for here, A in column_blocks(problem):
        alpha = masks.inclusion[here]
        squares = (A * A).sum(axis=0) * alpha / total
        np.divide(1.0, np.sqrt(squares), out=squares, where=squares > 0)
        scale[here] = squares
        rows += (A * squares) ** 2 @ alpha
    return scale, rows.max() * n / total


def _batches(
    problem: Problem, scale: Array, batch_size: int, rng: np.random.Generator
) -> Iterator[tuple[Array, Array]]:
    """Endless mini-batches (x, y) in groups of rows: centred, scaled, rows weighted to mean one.

    All rows come once before any comes again. The last group is filled up with zeros, which have no gradient.
    """
    X, Y, weight = problem.X, problem.Y, problem.weight
    X = sp.csr_array(X) if sp.issparse(X) else X
    n = len(Y)
    mean_x, mean_y = (weighted_mean(A, weight) if problem.fit_intercept else 0.0 for A in (X, Y))
    root = np.ones((n, 1)) if weight is None else np.sqrt(weight / weight.mean())[:, None]

    def gather(rows: Indices) -> tuple[Array, Array]:
        x = X[rows].toarray() if sp.issparse(X) else X[rows]
        return _in_groups((x - mean_x) * scale * root[rows]), _in_groups((Y[rows] - mean_y) * root[rows])

    if n <= batch_size:
        yield from repeat(gather(np.arange(n)))
    while True:
        for rows in np.array_split(rng.permutation(n), -(-n // batch_size)):  # of equal sizes but for one row
            yield gather(rows)


def _in_groups(A: Array, group: int = 8) -> Array:
    """Rows that share masks: drawing a mask costs about as much as applying it to eight rows."""
    filled = np.zeros((-(-len(A) // group) * group, A.shape[1]))
    filled[: len(A)] = A
    return filled.reshape(-1, group, A.shape[1])


def _largest_eigenvalue(x: Array, rng: np.random.Generator) -> float:
    """Of x'x / rows, by power iteration; a little too large is safe."""
    v, value = np.asarray(rng.standard_normal(x.shape[1])), 1.0
    for _ in range(30):
        v = x.T @ (x @ v) / len(x)
        value = float(np.linalg.norm(v)) or 1.0
        v = v / value
    return 1.1 * value


class _BlockMeans:
    """Running average of the iterates, in 32 to 64 blocks of equal length that merge in pairs as a run grows long."""

    def __init__(self) -> None:
        self.length = 8
        self.blocks: list[Array] = []
        self._sum: Array | float = 0.0
        self._count = 0

    def add(self, z: Array) -> int:
        """Add one iterate; the number of steps of the block it finished, 0 if it finished none."""
        self._sum = self._sum + z
        self._count += 1
        if self._count < self.length:
            return 0
        self.blocks.append(np.asarray(self._sum) / self.length)
        finished, self._sum, self._count = self._count, 0.0, 0
        if len(self.blocks) == 64:
            self.blocks = [(a + b) / 2 for a, b in zip(self.blocks[::2], self.blocks[1::2], strict=True)]
            self.length *= 2
        return finished

    def _used(self) -> Array:
        return np.array(self.blocks[len(self.blocks) // 4 :])  # without the burn-in

    def average(self, last: Array) -> Array:
        """Mean of the blocks after the burn-in; the last iterate when there is none yet."""
        return self._used().mean(axis=0) if self.blocks else last

    def relative_error(self) -> float:
        """Standard error of the average over its norm; infinite while there are too few blocks to tell.

        Neighbouring blocks that resemble each other count for less: variances are inflated by (1 + r) / (1 - r), r the
        correlation of successive blocks. A drift that has not ended shows as r near one.
        """
        if len(self.blocks) < 32:
            return np.inf
        used = self._used()
        middle, count = used.mean(axis=0), len(used)
        off = used - middle
        norm, spread = np.linalg.norm(middle), np.vdot(off, off)
        if spread == 0 or norm == 0:
            return 0.0 if spread == 0 else np.inf
        r = np.clip(np.vdot(off[1:], off[:-1]) / spread, 0.0, 0.99)
        return float(np.sqrt(spread / (count * (count - 1)) * (1 + r) / (1 - r)) / norm)
