"""The ensembles as scikit-learn estimators, which translate user input for the engines."""
