"""One file of many: the modules of the page joined in the order of their imports, the style and the data put in."""

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
        With every script, style and number inside; under 2 MB.
    """
    script = bundle("main.mjs")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {
        "style": _source("style.css"),
        "script": script,
        "script-digest": f"sha256-{digest}",  # nothing else may run in the page
        "soil": resources.files(__package__).joinpath(DATA).read_text(encoding="utf-8"),
        "version": __version__,
    }
    return re.sub(r"\{\{([\w-]+)\}\}", lambda found: parts[found[1]], _source("page.html"))


def write(path: str | os.PathLike[str]) -> Path:
    """Write the page to a file, whole or not at all.

    Parameters
    ----------
    path : path
        A file there is replaced; folders are made.

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
        Where to; by default into a folder for temporary files, where it stays for the browser to read.
    open_browser : bool, default=True
        Whether to ask the browser to show it. Where there is none nothing happens; the file is there all the same.

    Returns
    -------
    Path
        The file.
    """
    path = write(Path(tempfile.mkdtemp(prefix="olsen-")) / "explorer.html" if out is None else out)
    if open_browser:
        webbrowser.open(path.resolve().as_uri())
    return path


def bundle(entry: str) -> str:
    """One module of JavaScript with everything that `entry` imports, each module after those it needs.

    Modules share one scope in the result, so a name may be declared at the top of one of them only.
    """
    order: list[str] = []

    def visit(name: str) -> None:
        for needed in IMPORT.findall(_source(name)):
            visit(needed)
        if name not in order:
            order.append(name)

    visit(entry)
    return "\n".join(re.sub(r"^export ", "", IMPORT.sub("", _source(name)), flags=re.M) for name in order)


def _source(name: str) -> str:
    return SOURCES.joinpath(name).read_text(encoding="utf-8")
