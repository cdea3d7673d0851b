"""Training data of least squares: rows, their moments and triangular factors, and sources that are
read in blocks.
"""
