"""The report of a fit: first a dict of plain types (`summary`), then one HTML page that needs nothing else (`page`)."""

from .page import render
from .summary import as_text, left_out_predictions, sampled_errors, summarise, summarise_folds

__all__ = ["as_text", "left_out_predictions", "render", "sampled_errors", "summarise", "summarise_folds"]
