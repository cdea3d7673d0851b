"""Products of standardised columns on a device, where penalised fits are solved.

The choice of the adaptive model runs on the host, but the solutions that cost most, factors and
eigenvalues of (p, p) matrices, are computed where the rows are. Only coefficients are copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._execution.arrays import Space

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class DeviceProducts:
    """A symmetric positive semidefinite matrix M on a device."""

    space: Space
    M: Any  # (k, k)

    def scaled(self, columns: Indices, root: Array) -> DeviceProducts:
        """Rows and columns of M, each times its root."""
        xp = self.space.xp
        M = self.M
        if len(columns) < M.shape[0]:
            indices = self.space.put(columns)
            M = xp.take(xp.take(M, indices, axis=0), indices, axis=1)
        factors = self.space.put(root)
        return DeviceProducts(self.space, M * factors * factors[:, None])

    @property
    def order(self) -> int:
        """Rows of M."""
        return int(self.M.shape[0])

    @property
    def trace(self) -> float:
        """Sum of the diagonal of M."""
        return float(self.space.xp.sum(self.space.xp.linalg.diagonal(self.M)))

    def on_host(self) -> Array:
        """A copy of M."""
        return np.asarray(self.space.get(self.M), dtype=np.float64)

    def eigenvalues(self) -> Array:
        """Eigenvalues in rising order."""
        return np.asarray(self.space.get(self.space.xp.linalg.eigvalsh(self.M)))

    def solved(self, right: Array, shifts: Array) -> Array | None:
        """Solutions (M + shift)^-1 right, (shifts, k, q), by one stack of factors; None where a matrix
        is not positive definite.
        """
        inverse = self._inverse_factors(shifts)
        if inverse is None:
            return None
        transposed = self.space.xp.matrix_transpose(inverse)
        return np.asarray(self.space.get(transposed @ (inverse @ self.space.put(right))))

    def degrees_of_freedom(self, shift: float) -> Array | None:
        """Diagonal of M (M + shift)^-1, (k,); None where M + shift is not positive definite."""
        inverse = self._inverse_factors(np.array([shift]))
        if inverse is None:
            return None
        squares = self.space.xp.sum(inverse[0, :, :] ** 2, axis=0)
        return np.asarray(1 - shift * self.space.get(squares))

    def _inverse_factors(self, shifts: Array) -> Any | None:
        """Inverses of the lower Cholesky factors of M + shift, (shifts, k, k)."""
        xp = self.space.xp
        eye = xp.eye(self.order, dtype=self.space.dtype, device=self.space.device)
        factors = self.space.cholesky(self.M + self.space.put(shifts)[:, None, None] * eye)
        return None if factors is None else self.space.inverse_of_lower(factors)
