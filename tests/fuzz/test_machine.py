"""Sequences of calls: whatever happened before, an estimator is what a fresh one with its
parameters would be.
"""

import copy
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from numpy.testing import assert_allclose

from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV

refittable = precondition(
    lambda self: self.seen is not None and not self.streaming and not self.pickled
)


class Calls(RuleBasedStateMachine):
    """One estimator, and what it must be: the class, its parameters, and the rows of its last fit
    or its batches.
    """

    @initialize(
        cls=st.sampled_from(
            [OLSEnsembleRegressor, OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor]
        ),
        seed=st.integers(0, 99),
    )
    def start(self, cls, seed):
        self.cls = cls
        self.seed = seed
        self.rng = np.random.default_rng(seed)
        self.params = {"n_estimators": 4, "random_state": seed}
        self.params |= {"max_features": 3} if cls is OLSEnsembleRegressor else {}
        self.model = self.fresh()
        self.seen = None  # (X, y, weight) of the fit
        self.streaming = self.pickled = False

    def fresh(self):
        return self.cls(**self.params)

    def table(self, rows=14):
        X = self.rng.standard_normal((rows, 6))
        return X, X[:, 0] + self.rng.standard_normal(rows), self.rng.random(rows) + 0.5

    @rule(weighted=st.booleans())
    def fit(self, weighted):
        X, y, w = self.table()
        self.seen = (X, y, w if weighted else None)
        self.model.fit(*self.seen)
        self.streaming = self.pickled = False

    @refittable
    @rule(n_more=st.integers(1, 3))
    def take_more_members(self, n_more):
        self.params["n_estimators"] += n_more
        self.model.set_params(**self.params).fit(*self.seen)

    @refittable
    @rule(scale=st.sampled_from([1.0, 0.5, None]))
    def change_the_scale(self, scale):
        if self.cls is AdaptiveOLSEnsembleRegressor:
            self.params["schemes"] = "auto" if scale is None else ["ridge", "uniform"]
        else:
            self.params["scale"] = "auto" if scale is None else scale
        self.model.set_params(**self.params).fit(*self.seen)

    @refittable
    @rule()
    def change_data_in_place(self):
        self.seen[1][:] *= -3.0
        self.model.fit(*self.seen)

    @rule(rows=st.integers(2, 9))
    def add_a_batch(self, rows):
        if self.cls is not OLSEnsembleRegressor or self.params.get("scale") == "auto":
            return
        if self.pickled and not self.streaming:
            return
        X, y, w = self.table(rows)
        self.model.partial_fit(X, y, w)
        if self.seen is None:
            self.seen = (X, y, w)
        else:
            earlier_weight = np.ones(len(self.seen[1])) if self.seen[2] is None else self.seen[2]
            self.seen = (
                np.vstack([self.seen[0], X]),
                np.r_[self.seen[1], y],
                np.r_[earlier_weight, w],
            )
        self.streaming = True

    @rule(copier=st.sampled_from([copy.copy, copy.deepcopy]))
    def copy_it(self, copier):
        self.model = copier(self.model)

    @rule()
    def pickle_it(self):
        self.model = pickle.loads(pickle.dumps(self.model))
        self.pickled = self.pickled or self.seen is not None

    @rule()
    def fail(self):
        """A call that fails changes nothing."""
        earlier_weight = dict(vars(self.model))
        for bad_X in (np.full((3, 6), np.nan), np.zeros((0, 6))):
            with pytest.raises(ValueError):
                self.model.fit(bad_X, np.zeros(len(bad_X)))
        assert vars(self.model).keys() == earlier_weight.keys()

    @precondition(lambda self: self.seen is not None)
    @invariant()
    def is_what_a_fresh_one_would_be(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fresh = self.fresh().fit(*self.seen)
            assert_allclose(self.model.coef_, fresh.coef_, rtol=1e-8, atol=1e-10)
            assert_allclose(self.model.intercept_, fresh.intercept_, rtol=1e-8, atol=1e-10)
            assert self.model.n_estimators_ == fresh.n_estimators_ and np.isclose(
                self.model.scale_, fresh.scale_
            )
            assert all(map(np.array_equal, self.model.feature_subsets_, fresh.feature_subsets_))
            if self.cls is not OLSEnsembleRegressor:
                assert np.isclose(self.model.best_score_, fresh.best_score_)
            if self.cls is OLSEnsembleRegressorCV:
                assert_allclose(self.model.risk_curve(7), fresh.risk_curve(7))
            if not self.streaming:
                ours, theirs = (
                    m.predict_interval(self.seen[0][:2], coverage=0.8) for m in (self.model, fresh)
                )
                assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)


TestCalls = Calls.TestCase
TestCalls.settings = settings(
    max_examples=40, stateful_step_count=8, deadline=None, suppress_health_check=list(HealthCheck)
)
