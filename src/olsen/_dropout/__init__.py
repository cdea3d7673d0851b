"""Least squares under dropout: the estimator, what it converges to, and how it is trained."""
