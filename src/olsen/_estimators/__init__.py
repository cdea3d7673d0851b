"""The ensembles as scikit-learn estimators: they translate, engines compute."""
