"""The adaptive model: a registry of sampling schemes, their weights by cross-validation, and the
choice as one page.
"""
