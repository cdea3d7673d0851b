"""Fits and predictions of ensembles of a given size."""

import numpy as np
import scipy.sparse as sp

from olsen import OLSEnsembleRegressor


def linear(n, p):
    """Gaussian X, and y from coefficients of unit length with noise of unit variance."""
    rng = np.random.default_rng(0)
    X, beta = rng.standard_normal((n, p)), rng.standard_normal(p)
    return X, X @ (beta / np.linalg.norm(beta)) + rng.standard_normal(n)


class Fit:
    """Whole calls of `fit`; shapes are n, p, m, k, max_samples."""

    params = (
        (200, 400, 120, 500, 1.0),
        (1000, 500, 250, 200, 1.0),
        (2000, 1000, 500, 100, 1.0),
        (5000, 100, 50, 1000, 1.0),
        (2000, 1000, 800, 100, 1.0),
        (2000, 500, 100, 200, 0.25),
        (500, 20_000, 100, 500, 1.0),
    )
    param_names = ("shape",)
    timeout = 120

    def setup(self, shape):
        n, p, m, k, max_samples = shape
        self.X, self.y = linear(n, p)
        self.model = OLSEnsembleRegressor(k, m, max_samples, n_jobs=2, random_state=0)
        self.time_fit(shape)  # compiles what is not cached

    def time_fit(self, shape):
        self.model.fit(self.X, self.y)


class Predict:
    """Prediction on a thousand rows."""

    def setup(self):
        self.X, y = linear(1000, 500)
        self.model = OLSEnsembleRegressor(200, 250, n_jobs=2, random_state=0).fit(self.X, y)

    def time_predict(self):
        self.model.predict(self.X)


class Wide:
    """More columns than a Gram matrix of all of them should be made for."""

    def setup(self):
        self.X, self.y = linear(500, 20_000)

    def peakmem_wide(self):
        OLSEnsembleRegressor(500, 100, n_jobs=2, random_state=0).fit(self.X, self.y)


class Sampling:
    """Fits of every kind of sampling, and an interval."""

    params = ("bernoulli", "determinantal")
    param_names = ("sampling",)

    def setup(self, sampling):
        self.X, self.y = linear(1000, 400)
        self.model = OLSEnsembleRegressor(300, 150, sampling=sampling, n_jobs=2, random_state=0)
        self.time_fit(sampling)

    def time_fit(self, sampling):
        self.model.fit(self.X, self.y)

    def time_interval(self, sampling):
        self.model.predict_interval(self.X[:100])


class Sparse:
    """Sparse columns, and several targets."""

    def setup(self):
        rng = np.random.default_rng(0)
        self.X = sp.random_array((3000, 2000), density=0.01, rng=rng, format="csr")
        self.Y = self.X @ rng.standard_normal((2000, 5)) + rng.standard_normal((3000, 5))
        self.model = OLSEnsembleRegressor(100, 200, n_jobs=2, random_state=0)

    def time_fit(self):
        self.model.fit(self.X, self.Y)


class Tall:
    """Many rows: peak memory of a fit."""

    def setup(self):
        self.X, self.y = linear(400_000, 40)

    def peakmem_fit(self):
        OLSEnsembleRegressor(100, 20, n_jobs=2, random_state=0).fit(self.X, self.y)
