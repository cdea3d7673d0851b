"""Numbers as they stand in tables."""

from __future__ import annotations

__all__ = ["duration", "limits", "times", "verdict"]


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if seconds < limit:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds:.2f} s"


def times(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio:.0f} x" if ratio >= 10 else f"{ratio:.2f} x"


def limits(row: dict, show=times) -> dict[str, str]:
    """The last columns of most tables."""
    return {"must": show(row["must"]), "aim": show(row["aim"]), "verdict": row["verdict"]}


def verdict(judged: dict, show=times) -> str:
    """A second value of a row with its limits, in one cell."""
    return (
        f"{show(judged['value'])} ({show(judged['must'])}, {show(judged['aim'])}),"
        f" {judged['verdict']}"
    )
