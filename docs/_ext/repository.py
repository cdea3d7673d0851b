"""Pages are read in a checkout and on the site. Files beside docs that have a page here are linked
to that page.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

PAGES = {
    "CODE_OF_CONDUCT.md": "code_of_conduct.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
BESIDE = re.compile(r"\]\((?:\.\./)+(" + "|".join(map(re.escape, PAGES)) + r")(?=[)#])")


def link_pages(app: Any, docname: str, source: list[str]) -> None:
    """`../CONTRIBUTING.md` of the checkout is `contributing.md` of the site."""
    folder = posixpath.dirname(docname) or "."
    source[0] = BESIDE.sub(
        lambda found: "](" + posixpath.relpath(PAGES[found[1]], folder), source[0]
    )


def setup(app: Any) -> dict[str, Any]:
    app.connect("source-read", link_pages)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
