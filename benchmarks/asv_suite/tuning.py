"""Ensembles that choose the size of their members, or the weights of sampling schemes."""

from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressorCV

from .ensembles import linear

SHAPES = ((200, 50), (2000, 1000), (100, 4000))


class Sizes:
    """Whole calls of `OLSEnsembleRegressorCV.fit`; shapes are n, p."""

    params = SHAPES
    param_names = ("shape",)
    timeout = 120

    def setup(self, shape):
        self.X, self.y = linear(*shape)
        self.model = OLSEnsembleRegressorCV(n_jobs=2, random_state=0)
        self.time_tuning(shape)  # the file cache is warm from here on

    def time_tuning(self, shape):
        self.model.fit(self.X, self.y)


class Schemes:
    """Whole calls of `AdaptiveOLSEnsembleRegressor.fit`; shapes are n, p."""

    params = SHAPES
    param_names = ("shape",)
    timeout = 120

    def setup(self, shape):
        self.X, self.y = linear(*shape)
        self.model = AdaptiveOLSEnsembleRegressor(n_jobs=2, random_state=0)
        self.time_tuning(shape)  # the file cache is warm from here on

    def time_tuning(self, shape):
        self.model.fit(self.X, self.y)

    def time_interval(self, shape):
        self.model.predict_interval(self.X[:50])


class Memory:
    """Peak memory of an adaptive fit of many rows."""

    def setup(self):
        self.X, self.y = linear(200_000, 40)

    def peakmem_fit(self):
        AdaptiveOLSEnsembleRegressor(n_jobs=2, random_state=0).fit(self.X, self.y)
