"""The explorer: one page for the browser, to try out the risk, the members and a data set.

The page holds everything it needs and asks nobody for anything. Its sources are the files in ``page``: modules of
JavaScript, a style and the text; the numbers of the data set are in ``soil.json``.

>>> from olsen import explorer
>>> explorer.page().startswith("<!doctype html>")
True
"""

from .assembly import explore, page, write

__all__ = ["explore", "page", "write"]
