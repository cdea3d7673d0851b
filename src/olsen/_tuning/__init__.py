"""Tuning of the size of members: risk curves, criteria, penalties of ridge regression, scale and
stacking weights.
"""
