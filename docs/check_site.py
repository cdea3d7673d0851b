"""The built site, read once more: pages load nothing from elsewhere, and links between them lead
somewhere.

    python docs/check_site.py docs/_build/html

Links to other sites are for readers to follow and are not asked; but a name that two projects have
must lead to the one that is meant.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = dict.fromkeys(
    ("script", "img", "iframe", "source", "video", "audio", "embed", "input"), "src"
)
LOADS |= {"object": "data", "use": "href", "image": "href"}
FOLLOWED_LATER = {
    "canonical",
    "search",
    "next",
    "prev",
    "index",
    "author",
    "license",
    "alternate",
    "help",
    "top",
    "up",
}
SKLEARN = "https://scikit-learn.org/stable/modules/generated/sklearn."
MEANT = {  # page and text of a link -> where it must lead
    ("guide/choosing.html", "Ridge"): f"{SKLEARN}linear_model.Ridge.html",
    ("guide/choosing.html", "RidgeCV"): f"{SKLEARN}linear_model.RidgeCV.html",
    (
        "guide/choosing.html",
        "PLSRegression",
    ): f"{SKLEARN}cross_decomposition.PLSRegression.html",
    (
        "guide/from_bagging.html",
        "BaggingRegressor",
    ): f"{SKLEARN}ensemble.BaggingRegressor.html",
}
IN_STYLES = re.compile(
    r"url\(\s*['\"]?((?:https?:)?//[^'\")\s]+)|@import\s+['\"]((?:https?:)?//[^'\"]+)"
)


class Page(HTMLParser):
    """What a page loads, where it leads, and what can be linked to in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.texts: list[str] = []  # of the links, in the same order
        self.anchors: set[str] = set()
        self.in_style = self.in_link = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.in_style = tag == "style"
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        self.loads += [given[LOADS[tag]]] if given.get(LOADS.get(tag, "")) else []
        self.loads += [
            part.split()[0]
            for part in given.get("srcset", "").split(",")
            if part.strip()
        ]
        self.loads += _of_styles(given.get("style", ""))
        if tag == "link" and not set(given.get("rel", "").split()) & FOLLOWED_LATER:
            self.loads.append(given.get("href", ""))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
            self.texts.append("")
            self.in_link = True

    def handle_endtag(self, tag: str) -> None:
        self.in_link = self.in_link and tag != "a"

    def handle_data(self, data: str) -> None:
        if self.in_style:
            self.loads += _of_styles(data)
        if self.in_link:
            self.texts[-1] += data


def _of_styles(text: str) -> list[str]:
    return [one or other for one, other in IN_STYLES.findall(text)]


def complaints(root: Path) -> Iterator[str]:
    """What is wrong with the site in `root`, a line each."""
    found = (
        path.resolve()
        for path in sorted(root.rglob("*.html"))
        if "_static" not in path.parts
    )  # there: templates
    pages = {path: Page(path) for path in found}
    if not pages:
        yield f"{root} holds no pages"
    for path, page in pages.items():
        name = path.relative_to(root.resolve())
        for load in page.loads:
            if _elsewhere(load):
                yield f"{name} loads {load}"
            elif (
                load
                and not load.startswith("data:")
                and not _target(path, load).exists()
            ):
                yield f"{name} loads {load}, which is not there"
        for link in page.links:
            if urlsplit(link).scheme or link.startswith("//"):
                continue
            target, anchor = _target(path, link), unquote(urlsplit(link).fragment)
            if not target.exists():
                yield f"{name} links to {link}, which is not there"
            elif anchor and target in pages and anchor not in pages[target].anchors:
                yield f"{name} links to {link}, a page without that anchor"
    for (name, text), address in MEANT.items():
        if (root / name).exists():
            page = pages[(root / name).resolve()]
            found = [
                link
                for link, of in zip(page.links, page.texts, strict=True)
                if of == text
            ]
            if not found:
                yield f"{name} has no link {text}"
            yield from (
                f"{name} links {text} to {link}"
                for link in found
                if link.partition("#")[0] != address
            )
    for style in sorted(root.rglob("*.css")):
        for load in _of_styles(style.read_text(encoding="utf-8", errors="replace")):
            yield f"{style.relative_to(root)} loads {load}"


def _elsewhere(address: str) -> bool:
    return address.startswith(("http:", "https:", "//"))


def _target(page: Path, link: str) -> Path:
    path = unquote(urlsplit(link).path)
    return (page.parent / path).resolve() if path else page


if __name__ == "__main__":
    sys.exit("\n".join(complaints(Path(sys.argv[1]))) or None)
