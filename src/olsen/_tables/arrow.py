"""pyarrow, imported when a table is first encoded: it belongs to the extra ``parquet``."""

from __future__ import annotations

from typing import Any

from .._execution import from_extra


class DeferredModule:
    """A module of pyarrow that is imported when one of its names is first used.

    Without pyarrow that use raises the error that names the extra; importing olsen does not.

    >>> DeferredModule("pyarrow").array([1, 2]).to_pylist()
    [1, 2]
    """

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        module = from_extra(self._module, "parquet", "TableEncoder")
        vars(self).update(vars(module))  # from now on names are found without this function
        return getattr(module, name)


pa: Any = DeferredModule("pyarrow")
pc: Any = DeferredModule("pyarrow.compute")
