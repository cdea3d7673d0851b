"""What all engines refuse in the same words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["check_columns", "column_names", "cut_short", "refuse_text", "require_positive"]


def require_positive(kept: int, given: int, least: int = 2) -> None:
    """Refuse weights that leave too few rows."""
    if kept < least:
        raise ValueError(
            f"sample_weight is positive for {kept} of {given} rows, but at least {least} rows with positive weight are "
            f"needed; a weight of zero drops the row."
        )


def refuse_text(text: Sequence[str], n_columns: int) -> None:
    """Name the columns that do not hold numbers, if there are any."""
    if text:
        shown = ", ".join(repr(name) for name in text[:5]) + (f" and {len(text) - 5} more" if len(text) > 5 else "")
        raise ValueError(
            f"{len(text)} of {n_columns} columns do not hold numbers: {shown}. Encode them first, for instance with "
            f"sklearn.preprocessing.OneHotEncoder, or leave them out."
        )


def cut_short(kind: str, error: Exception) -> ValueError:
    """The error for a file that cannot be read on, with what its library says."""
    return ValueError(f"{kind} cannot be read to its end ({error}); it may have been cut short.")


def column_names(X: Any) -> list[str] | None:
    """Names of the columns of a data frame; None for arrays, and where names are not texts, as in scikit-learn."""
    names = getattr(X, "columns", None)
    return list(names) if names is not None and all(isinstance(name, str) for name in names) else None


def check_columns(given: Sequence[str] | None, n_given: int, fitted: Sequence[str] | None, n: int, who: str) -> None:
    """Refuse columns that are not those of the fit, in scikit-learn's words."""
    if given is not None and fitted is not None and list(given) != list(fitted):
        raise ValueError(_names_differ([str(name) for name in given], [str(name) for name in fitted]))
    if n_given != n:
        raise ValueError(f"X has {n_given} features, but {who} is expecting {n} features as input.")


def _names_differ(given: list[str], fitted: list[str]) -> str:
    parts = ["The feature names should match those that were passed during fit."]
    for names, others, title in (
        (given, set(fitted), "Feature names unseen at fit time:"),
        (fitted, set(given), "Feature names seen at fit time, yet now missing:"),
    ):
        odd = sorted(set(names) - others)
        if odd:
            parts += [title, *(f"- {name}" for name in odd[:5]), *(["- ..."] if len(odd) > 5 else [])]
    if len(parts) == 1:
        parts.append("Feature names must be in the same order as they were in fit.")
    return "\n".join(parts) + "\n"
