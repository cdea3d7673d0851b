r"""Dropout as in the training of networks: stochastic gradients, each with newly drawn masks.

A step draws a batch of rows, cuts it into small groups T, draws M masks for each and follows the
gradient of the mean loss,

.. math:: g \propto \sum_T \sum_{i=1}^M S_{Ti} S_{Ti}' X_T' (X_T S_{Ti} S_{Ti}' b - y_T) , \qquad
          b \leftarrow b - \eta_t g .

The expectation over masks is never computed. Averaging the iterates (Polyak and Ruppert)
approximates it, with an error that falls as one over the root of the number of masks for any step
size. A run stops when the standard error of the average, estimated from the variance of its blocks,
is below `tol`.

Coordinates are :math:`\mathrm{diag}(G)^{1/2} A^{1/2} b`, so that columns in other units or with
smaller probabilities converge at the same rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._data.moments import weighted_mean
from .._data.rows import RowData
from .exact import Masks, column_blocks

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


class Run(NamedTuple):
    """Result of training."""

    coef: NDArray[np.float64]  # (p, q)
    n_iter: int
    losses: NDArray[np.float64]  # mean loss of each block of steps
    error: float  # standard error of the average, relative to its norm
    converged: bool


def train(
    problem: RowData,
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
    scale, max_row_square = _scales(problem, masks)
    n = len(problem.Y)
    batches = _batches(problem, scale, batch_size, rng)
    if learning_rate is None:
        # inverse of a bound on the mean squared Hessian over the mean Hessian: its mean, plus masks
        # and rows
        top = _largest_eigenvalue(next(batches)[0].reshape(-1, len(scale)), rng)
        mean_term = masks.partner.max() * masks.inclusion.max() * top + 1.0
        mask_term = top / n_masks
        row_term = 0.0 if n <= batch_size else max_row_square / batch_size
        learning_rate = float(1.0 / (mean_term + mask_term + row_term))
    block_means = _BlockMeans()
    z = np.zeros((len(scale), problem.Y.shape[1]))
    mean_batch_rows = n / -(-n // batch_size)
    losses: list[float] = []
    block_loss = 0.0
    error = np.inf
    step = 0
    for step in range(1, max_iter + 1):
        x, y = next(batches)
        mask = _draw_masks(masks, len(x), n_masks, rng)
        loss, gradient = _loss_and_gradient(x, y, mask, z, mean_batch_rows)
        # from 200 steps on the step size falls as 1 / sqrt(t); its mean bounds the bias of
        # reshuffled rows
        z -= learning_rate / np.sqrt(1 + step / 200) * gradient
        block_loss += loss
        if block_steps := block_means.add(z):
            losses.append(block_loss / block_steps)
            block_loss = 0.0
            if not np.isfinite(losses[-1]) or losses[-1] > 1e6 * losses[0]:
                raise ValueError(
                    f"training diverged: the mean loss went from {losses[0]:.3g} to"
                    f" {losses[-1]:.3g} with a first step of {learning_rate:.3g}. Lower"
                    " learning_rate, or leave it None to have it set from the data."
                )
            error = block_means.relative_error()
            if report is not None:
                report(step)
            if error <= tol:
                break
    coef = block_means.average(z) * scale[:, None]
    return Run(coef, n_iter=step, losses=np.array(losses), error=error, converged=error <= tol)


def _loss_and_gradient(
    x: Array, y: Array, mask: Array, z: Array, n_rows: float
) -> tuple[float, Array]:
    """Loss and its gradient, as means over rows and masks.

    Shapes: x (groups, rows, p), y (groups, rows, q), mask (groups, M, p), z (p, q).
    """
    groups, count, p = mask.shape
    masked_coef = (mask[:, :, None, :] * z.T).reshape(groups, -1, p)  # (groups, M q, p)
    residual = masked_coef @ x.transpose(0, 2, 1) - np.tile(y.transpose(0, 2, 1), (1, count, 1))
    gradient = (residual @ x).reshape(groups * count, -1, p)
    loss = np.vdot(residual, residual) / (count * n_rows)
    return loss, np.einsum("mp,mqp->pq", mask.reshape(-1, p), gradient) / (count * n_rows)


def _draw_masks(masks: Masks, groups: int, count: int, rng: np.random.Generator) -> Array:
    """Draw masks (groups, count, p) in antithetic pairs; every single mask has the right
    probabilities.

    Coin flips compare u and u + 1/2 (mod 1) with the probability; masks of fixed size take the
    smallest and the largest of the same keys.
    """
    p = len(masks.inclusion)
    half = -(-count // 2)
    u = rng.random((groups, half, p), dtype=np.float32)
    if masks.size is None:
        antithetic = u + np.float32(0.5)
        antithetic -= antithetic >= 1
        keys = np.concatenate([u, antithetic], axis=1)[:, :count]
        return (keys < masks.inclusion).astype(np.float64)
    mask = np.zeros((groups, 2 * half, p))
    order = np.argsort(u, axis=2)
    np.put_along_axis(mask[:, :half], order[..., : masks.size], 1.0, axis=2)
    np.put_along_axis(mask[:, half:], order[..., p - masks.size :], 1.0, axis=2)
    return mask[:, :count]


def _scales(problem: RowData, masks: Masks) -> tuple[Array, float]:
    """Factor (p,) from the coordinates of training to coefficients, zero for columns that cannot be
    learned.

    The second value is the largest expected squared length of a masked row, which bounds the effect
    of a row on a step.
    """
    n, p = problem.shape
    total_weight = n if problem.weight is None else problem.weight.sum()
    scale = np.zeros(p)
    row_squares = np.zeros(n)
    for columns, A in column_blocks(problem):
        alpha = masks.inclusion[columns]
        squares = (A * A).sum(axis=0) * alpha / total_weight
        column_scale = squares  # overwritten in place; zero squares stay zero
        np.divide(1.0, np.sqrt(squares), out=column_scale, where=squares > 0)
        scale[columns] = column_scale
        row_squares += (A * column_scale) ** 2 @ alpha
    return scale, row_squares.max() * n / total_weight


def _batches(
    problem: RowData, scale: Array, batch_size: int, rng: np.random.Generator
) -> Iterator[tuple[Array, Array]]:
    """Yield endless mini-batches (x, y) in groups of rows: centred, scaled, sqrt-weighted with mean
    weight one.

    All rows come once before any row is repeated. The last group is padded with zeros, which have
    no gradient.
    """
    X = sp.csr_array(problem.X) if sp.issparse(problem.X) else problem.X
    Y = problem.Y
    weight = problem.weight
    n = len(Y)
    mean_x = weighted_mean(X, weight) if problem.fit_intercept else 0.0
    mean_y = weighted_mean(Y, weight) if problem.fit_intercept else 0.0
    root = np.ones((n, 1)) if weight is None else np.sqrt(weight / weight.mean())[:, None]

    def gather(rows: Indices) -> tuple[Array, Array]:
        x = X[rows].toarray() if sp.issparse(X) else X[rows]
        return _in_groups((x - mean_x) * scale * root[rows]), _in_groups(
            (Y[rows] - mean_y) * root[rows]
        )

    if n <= batch_size:
        yield from repeat(gather(np.arange(n)))
    while True:
        for rows in np.array_split(
            rng.permutation(n), -(-n // batch_size)
        ):  # sizes differ by one row at most
            yield gather(rows)


def _in_groups(A: Array, group: int = 8) -> Array:
    """Group the rows that have the same masks: drawing a mask costs about as much as applying it to
    eight rows.
    """
    padded = np.zeros((-(-len(A) // group) * group, A.shape[1]))
    padded[: len(A)] = A
    return padded.reshape(-1, group, A.shape[1])


def _largest_eigenvalue(x: Array, rng: np.random.Generator) -> float:
    """Largest eigenvalue of x'x / rows by power iteration, times 1.1, because too large a value is
    safe.
    """
    v = np.asarray(rng.standard_normal(x.shape[1]))
    value = 1.0
    for _ in range(30):
        v = x.T @ (x @ v) / len(x)
        value = float(np.linalg.norm(v)) or 1.0
        v = v / value
    return 1.1 * value


class _BlockMeans:
    """Running average of the iterates in up to 64 blocks of equal length; 64 blocks are merged in
    pairs to 32.
    """

    def __init__(self) -> None:
        self.length = 8
        self.blocks: list[Array] = []
        self._sum: Array | float = 0.0
        self._count = 0

    def add(self, z: Array) -> int:
        """Add an iterate; return the number of steps of the block that it completes, 0 if it
        completes none.
        """
        self._sum = self._sum + z
        self._count += 1
        if self._count < self.length:
            return 0
        self.blocks.append(np.asarray(self._sum) / self.length)
        block_steps = self._count
        self._sum = 0.0
        self._count = 0
        if len(self.blocks) == 64:
            self.blocks = [
                (a + b) / 2 for a, b in zip(self.blocks[::2], self.blocks[1::2], strict=True)
            ]
            self.length *= 2
        return block_steps

    def _after_burn_in(self) -> Array:
        return np.array(self.blocks[len(self.blocks) // 4 :])

    def average(self, last: Array) -> Array:
        """Mean of the blocks after the burn-in; the last iterate if no block is complete."""
        return self._after_burn_in().mean(axis=0) if self.blocks else last

    def relative_error(self) -> float:
        """Standard error of the average relative to its norm; infinite if there are fewer than 32
        blocks.

        The variance is inflated by (1 + r) / (1 - r), where r is the correlation of successive
        blocks. If the iterates still drift, r is near one.
        """
        if len(self.blocks) < 32:
            return np.inf
        blocks = self._after_burn_in()
        count = len(blocks)
        mean = blocks.mean(axis=0)
        deviations = blocks - mean
        norm = np.linalg.norm(mean)
        squares = np.vdot(deviations, deviations)
        if squares == 0 or norm == 0:
            return 0.0 if squares == 0 else np.inf
        r = np.clip(np.vdot(deviations[1:], deviations[:-1]) / squares, 0.0, 0.99)
        variance = squares / (count * (count - 1)) * (1 + r) / (1 - r)
        return float(np.sqrt(variance) / norm)
