"""Data to fit."""

from __future__ import annotations

import numpy as np

__all__ = ["linear"]


def linear(n, p, seed=0):
    """Gaussian X (n, p), and y from coefficients of unit length with noise of unit variance."""
    rng = np.random.default_rng(seed)
    X, beta = rng.standard_normal((n, p)), rng.standard_normal(p)
    return X, X @ (beta / np.linalg.norm(beta)) + rng.standard_normal(n)
