# SPDX-License-Identifier: Apache-2.0
"""What a function's bytecode says: its instructions as values that compare, what it imports, which attributes of a name it uses."""
from __future__ import annotations

import bisect
import dis
import functools
import importlib.util
import linecache
import types
from collections.abc import Iterator, Mapping
from typing import Any

Path = tuple[str, ...]  # of a.b.c, used as a variable a: ("b", "c")


def codes_of(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a function's code and that of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_of(constant)


def compared(code: types.CodeType) -> list[Any]:
    """Return a code's instructions, with constants by value: a docstring does not count, nor do instructions that do nothing."""
    steps: list[dis.Instruction] = []
    places = {}
    for one in dis.get_instructions(code):
        places[one.offset] = len(steps)
        if one.opname not in ("NOP", "EXTENDED_ARG"):
            steps.append(one)
    jumps = {*dis.hasjrel, *dis.hasjabs}
    shown = [[one.opname, places.get(one.argval, -1) if one.opcode in jumps else
              _constant(one.argval) if one.opcode in dis.hasconst else repr(one.argval)] for one in steps]
    documents = {place - 1 for place, step in enumerate(shown) if step == ["STORE_NAME", "'__doc__'"]}
    kept = [step for place, step in enumerate(shown) if place not in documents]
    return [kept, list(code.co_varnames), list(code.co_freevars), _covered(code, steps)]


def _covered(code: types.CodeType, steps: list[dis.Instruction]) -> list[list[int]]:
    """Return which instructions a `try` or `with` covers, and where its handler begins: nothing else tells what a try covers (3.11 on)."""
    table = dis._parse_exception_table(code) if hasattr(dis, "_parse_exception_table") else []
    offsets = [one.offset for one in steps]

    def place(offset: int) -> int:
        return bisect.bisect_left(offsets, offset)

    return [[place(one.start), place(one.end), place(one.target), one.depth, one.lasti] for one in table]


def _constant(value: Any) -> str:
    if isinstance(value, types.CodeType):
        return "code"  # compared on its own
    if isinstance(value, frozenset):
        return f"frozenset {sorted(map(repr, value))}"
    return repr(value)


# ---- without asserts

def stripped(code: types.CodeType) -> types.CodeType:
    """Return a code as `python -OO` compiles it, so that -O is no change; the code itself if its file is not what was loaded."""
    linecache.checkcache(code.co_filename)
    places = _compiled("".join(linecache.getlines(code.co_filename)), code.co_filename)
    loaded, found = places.get((code.co_qualname, code.co_firstlineno), (None, None))
    if loaded is None or found is None or [*map(compared, codes_of(loaded))] != [*map(compared, codes_of(code))]:
        return code
    return found


@functools.lru_cache(maxsize=64)
def _compiled(text: str, file: str) -> dict[tuple[str, int], tuple[types.CodeType | None, types.CodeType | None]]:
    """Return the functions of a file by name and line, each as this interpreter compiles it and as -OO does; None for two in one place."""
    try:
        loaded, bare = (_by_place(compile(text, file, "exec", dont_inherit=True, optimize=level)) for level in (-1, 2))
    except (SyntaxError, ValueError):
        return {}
    return {place: (code, bare.get(place)) for place, code in loaded.items()}


def _by_place(code: types.CodeType) -> dict[tuple[str, int], types.CodeType | None]:
    found: dict[tuple[str, int], types.CodeType | None] = {}
    for one in codes_of(code):
        place = one.co_qualname, one.co_firstlineno
        found[place] = None if place in found else one
    return found


# ---- names

def imported(code: types.CodeType, around: Mapping[str, Any]) -> Iterator[str]:
    """Yield the modules that import statements in the code name."""
    level: Any = 0
    seen: list[Any] = []
    for one in dis.get_instructions(code):
        if one.opname.startswith("LOAD_CONST") or one.opname.startswith("LOAD_SMALL_INT"):
            seen.append(one.argval)
        elif one.opname == "IMPORT_NAME":
            level = seen[-2] if len(seen) > 1 and isinstance(seen[-2], int) else 0
            try:
                yield importlib.util.resolve_name("." * level + one.argval, around.get("__package__") or "")
            except ImportError:
                continue


def global_names(codes: list[types.CodeType]) -> list[str]:
    """Return the names of globals, builtins included, that the code reads."""
    return list(dict.fromkeys(one.argval for code in codes for one in dis.get_instructions(code)
                              if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")))


def paths(codes: list[types.CodeType], variable: str) -> list[Path]:
    """Return the attributes of a variable that the code names, () if it also does something else with the variable."""
    found: dict[Path, None] = {}
    for code in codes:
        each = [one for one in dis.get_instructions(code) if one.opname not in ("CACHE", "PUSH_NULL", "COPY_FREE_VARS")]
        for place, one in enumerate(each):
            if one.argval != variable or not one.opname.startswith("LOAD_") or one.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                continue
            if one.opname in ("LOAD_CONST", "LOAD_FAST", "LOAD_CLOSURE"):
                continue  # a text or local of that name, or a cell that an inner function gets
            end = place + 1
            while end < len(each) and each[end].opname in ("LOAD_ATTR", "LOAD_METHOD"):
                end += 1
            found[tuple(other.argval for other in each[place + 1:end])] = None
    return list(found)
