"""Sufficient statistics of rows for least squares, in forms that merge: moments and a triangular factor."""
