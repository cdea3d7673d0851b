"""The ensembles as scikit-learn estimators: user input is translated for the engines, which
compute.
"""
