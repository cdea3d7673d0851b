"""The report of a fit: first a dict of plain types (`summary`), then one HTML page that needs nothing else (`page`).

A comparison of models has a page too (`comparison`).
"""

from .comparison import render_comparison
from .page import render
from .summary import as_text, left_out_predictions, sampled_errors, summarise, summarise_folds

__all__ = [
    "as_text",
    "left_out_predictions",
    "render",
    "render_comparison",
    "sampled_errors",
    "summarise",
    "summarise_folds",
]
