"""Ensembles that choose the size of their members."""

from olsen import OLSEnsembleRegressorCV

from .ensembles import linear


class Tuning:
    """Whole calls of `fit` with 100 members; shapes are n, p."""

    params = ((200, 50), (2000, 1000), (100, 4000))
    param_names = ("shape",)
    timeout = 120

    def setup(self, shape):
        self.X, self.y = linear(*shape)
        self.model = OLSEnsembleRegressorCV(n_jobs=2, random_state=0)
        self.time_tuning(shape)  # compiles what is not cached

    def time_tuning(self, shape):
        self.model.fit(self.X, self.y)
