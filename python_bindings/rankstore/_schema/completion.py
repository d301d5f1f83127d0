# SPDX-License-Identifier: Apache-2.0
"""Which names completion and `dir()` show of an object: those that its users call."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)


def hides(*internal: str) -> Callable[[Class], Class]:
    """Return a decorator of a class whose objects show neither private names nor these, which other packages of ours call."""
    hidden = frozenset(internal)

    def change(made: Class) -> Class:
        shown: Any = made.__dir__

        def __dir__(self: Any) -> list[str]:
            return [name for name in shown(self) if name not in hidden and (name.startswith("__") or not name.startswith("_"))]

        made.__dir__ = __dir__  # type: ignore[method-assign, assignment]
        return made

    return change
