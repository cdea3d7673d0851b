r"""Normal equations of rows that stay implicit: a matrix that is known by its products.

A Krylov space (:mod:`olsen._members.lanczos`) of one right-hand side gives the solutions of all
penalties; each of its steps is two passes over X. Spaces of random vectors estimate diagonals and the
spectrum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._data.arrangement import random_numbers
from .._data.implicit import ImplicitRows
from .lanczos import Krylov

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# steps for one right-hand side, and the residual at which they end: coefficients of 3000 x 20 000
# sparse numbers are within 1e-8 of direct ones
MAX_STEPS = 200
RESIDUAL_TOL = 1e-8
N_PROBES = 16  # random vectors, by which probabilities have relative standard errors of a third
PROBE_TOL = 1e-2  # residual of a random vector: far below the noise of 16 vectors
N_SPECTRUM_PROBES = 4
N_SPECTRUM_STEPS = 24


@dataclass(frozen=True)
class ImplicitProducts:
    """The matrix M of normal equations, known by its products with vectors."""

    rows: ImplicitRows  # of the columns with a positive prior variance
    prior_variances: Array
    of_rows: bool  # M is A D A', otherwise D^1/2 A'A D^1/2

    @classmethod
    def of(
        cls, rows: ImplicitRows, columns: Indices, prior_variances: Array, *, of_rows: bool
    ) -> ImplicitProducts:
        """Leave out columns without prior variance where that saves most of the entries."""
        if 2 * len(columns) < len(prior_variances) or not of_rows:
            rows = rows.of_columns(columns)
            prior_variances = prior_variances[columns]
        return cls(rows, prior_variances, of_rows)

    @property
    def order(self) -> int:
        """Rows of M."""
        return self.rows.n_rows if self.of_rows else len(self.prior_variances)

    @property
    def trace(self) -> float:
        """Sum of the diagonal of M."""
        return float(self.prior_variances @ self.rows.squares)

    def __matmul__(self, vector: Array) -> Array:
        """Product with a vector."""
        rows = self.rows
        if self.of_rows:
            along = self.prior_variances[:, None] * rows.transposed_times(vector[:, None])
            return rows.times(along)[:, 0]
        root = np.sqrt(self.prior_variances)
        return root * rows.transposed_times(rows.times((root * vector)[:, None]))[:, 0]

    def solved(self, right: Array, shifts: Array) -> Array:
        """Solutions (M + shift)^-1 right, (shifts, order, q)."""
        solutions = [
            self.space(of_target, float(shifts.min())).solutions(shifts) for of_target in right.T
        ]
        return np.stack(solutions, axis=2)

    def space(self, right: Array, smallest_shift: float, tol: float = RESIDUAL_TOL) -> Krylov:
        """Krylov space of a right-hand side, which is not zero."""
        return Krylov.of(self.__matmul__, right, smallest_shift, MAX_STEPS, tol)

    def degrees_of_freedom(self, shift: float) -> Array:
        r"""Estimated degrees of freedom of every column, :math:`d_j a_j'(A D A' + \lambda)^{-1} a_j`.

        Means over Gaussian vectors u of the squares of :math:`D^{1/2} A' (A D A' + \lambda)^{-1/2}
        u`, whose relative standard error is the root of 2 / N_PROBES; the same in the columns.
        """
        probes = random_numbers(self.order, N_PROBES)
        total = np.zeros(len(self.prior_variances))

        def root_of(values: Array) -> Array:
            fitted = np.ones(len(values)) if self.of_rows else values
            return np.sqrt(fitted / (values + shift))[None]

        for probe in probes.T:
            along = self.space(probe, shift, PROBE_TOL).times_functions(root_of)[0]
            if self.of_rows:
                along = (
                    np.sqrt(self.prior_variances) * self.rows.transposed_times(along[:, None])[:, 0]
                )
            total += along**2
        return total * (self.rows.squares > 0) / N_PROBES

    def spectrum(self) -> Array:
        """Estimated eigenvalues, falling: the nodes of Lanczos' quadrature of a few random vectors,
        each as often as its weight says.
        """
        values = []
        weights = []
        for probe in random_numbers(self.order, N_SPECTRUM_PROBES).T:
            space = Krylov.of(
                self.__matmul__, probe, self.trace / self.order, N_SPECTRUM_STEPS, 0.0
            )
            nodes, E = space.decomposition
            values.append(nodes)
            weights.append(E[0] ** 2 / N_SPECTRUM_PROBES)
        order = np.argsort(-np.concatenate(values))
        last = np.rint(np.cumsum(np.concatenate(weights)[order]) * self.order).astype(np.int64)
        counts = np.diff(last, prepend=0)
        counts[0] = max(1, counts[0])
        return np.repeat(np.maximum(np.concatenate(values)[order], 0.0), counts)
