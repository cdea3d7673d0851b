"""Ensembles of ordinary least squares on random submatrices of the data."""

__version__ = "0.1.0"
