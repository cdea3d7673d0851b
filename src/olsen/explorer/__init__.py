"""The explorer: one page for the browser, to try out the risk, the members and a data set.

The page is self-contained and makes no requests. Its sources are the files in ``page``: JavaScript
modules, a style sheet and the text; the numbers of the data set are in ``soil.json``.

>>> from olsen import explorer
>>> explorer.page().startswith("<!doctype html>")
True
"""

from .assembly import explore, page, write

__all__ = ["explore", "page", "write"]
