"""The ensembles as scikit-learn estimators: user input is translated for the solvers, which
compute.
"""
