"""Least squares under dropout: the estimator, its closed-form limit and its training by stochastic
gradients.
"""
