"""Assembly of the page: its modules joined in the order of the imports, with the style and the data
included.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import tempfile
import webbrowser
from importlib import resources
from pathlib import Path

from .. import __version__
from .._execution.files import atomically

SOURCES = resources.files(__package__).joinpath("page")
DATA = "soil.json"
IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+\.mjs)";\n', flags=re.M)


def page() -> str:
    """The whole page, as HTML.

    Returns
    -------
    str
        Page with all scripts, styles and numbers included; under 2 MB.
    """
    script = bundle("main.mjs")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {
        "style": _source("style.css"),
        "script": script,
        # the content policy of the page allows no other script
        "script-digest": f"sha256-{digest}",
        "soil": resources.files(__package__).joinpath(DATA).read_text(encoding="utf-8"),
        "version": __version__,
    }
    return re.sub(r"\{\{([\w-]+)\}\}", lambda match: parts[match[1]], _source("page.html"))


def write(path: str | os.PathLike[str]) -> Path:
    """Write the page to a file, completely or not at all.

    Parameters
    ----------
    path : path
        File to write. An existing file is replaced; missing folders are created.

    Returns
    -------
    Path
        The file.
    """
    text = page()
    atomically(path, lambda temporary: temporary.write_bytes(text.encode()))
    return Path(path)


def explore(out: str | os.PathLike[str] | None = None, open_browser: bool = True) -> Path:
    """Write the page and show it.

    Parameters
    ----------
    out : path, optional
        File to write; by default in a new temporary folder, which is not deleted so that the
        browser can read it.
    open_browser : bool, default=True
        Whether to ask the browser to show the page. Without a browser only the file is written.

    Returns
    -------
    Path
        The file.
    """
    if out is None:
        out = Path(tempfile.mkdtemp(prefix="olsen-")) / "explorer.html"
    path = write(out)
    if open_browser:
        webbrowser.open(path.resolve().as_uri())
    return path


def bundle(entry: str) -> str:
    """A single JavaScript module of `entry` and its imports, each module after the modules that it
    imports.

    The modules share one scope in the result, so a name may be declared at the top level of only
    one module.
    """
    order: list[str] = []

    def visit(name: str) -> None:
        for imported in IMPORT.findall(_source(name)):
            visit(imported)
        if name not in order:
            order.append(name)

    visit(entry)
    modules = [IMPORT.sub("", _source(name)) for name in order]
    return "\n".join(re.sub(r"^export ", "", module, flags=re.M) for module in modules)


def _source(name: str) -> str:
    return SOURCES.joinpath(name).read_text(encoding="utf-8")
