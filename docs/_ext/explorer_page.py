"""Pages that are written at build time: the explorer, as it comes with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def write_explorer(app: Any) -> None:
    """The explorer beside the pages; nothing in it comes from elsewhere either."""
    if app.builder.format != "html":
        return
    from olsen import explorer

    folder = Path(app.outdir)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "explorer.html").write_text(explorer.page(), encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    app.connect("builder-inited", write_explorer)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
