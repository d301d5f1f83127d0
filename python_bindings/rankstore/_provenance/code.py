# SPDX-License-Identifier: Apache-2.0
"""What a function's result depends on: its code, and all that the code uses, by name.

    of(map).found ──► {"": "code 3f2a...", "MAX": "400", "clean": "code 91bc...", "CONFIG['lower']": "True",
                       "tok": "mine.Tok", "tok.vocab": "dict of 50000 (77ab...)", "numpy": "numpy 2.4.6"}

The user's own functions and classes count by their code and by the globals, closures and defaults that they use. Data counts by value, an
object by its type and state. Modules and everything from an installed package count by name and version. `unfollowed` lists what cannot be
followed (a lock), or is another value in each run (a logger, a time). A text that might be secret is shown by digest.
"""
from __future__ import annotations

import argparse
import copyreg
import functools
import gc
import hashlib
import importlib.metadata
import itertools
import json
import os
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping, Set
from typing import Any

from .._sources import digest
from . import bytecode
from .varying import varies

SHOWN = 24  # longer texts are shown by digest (characters)
EXPANDED = 64  # larger containers are digested as a whole (entries)
DEPTH = 24
_HEAP_TYPE = 1 << 9  # a class that Python code made, in type.__flags__
_SECRET = ("key", "token", "secret", "password", "passwd", "credential")
_PLAIN = (type(None), bool, int, float, complex)
_NAMESPACES = (argparse.Namespace, types.SimpleNamespace)
_METHODS = (types.FunctionType, staticmethod, classmethod, property, functools.cached_property)


def of(function: Any) -> Uses:
    """Return what a callable uses."""
    made = Uses()
    made.module = getattr(getattr(function, "func", None) or function, "__module__", "") or ""
    made.follow("", function)
    return made


def own(function: Any) -> dict[str, str]:
    """Return a callable's own code, and the plain values of its defaults, closure and attributes: what is the same on all ranks."""
    made = Uses(own=True)
    made.follow("", function)
    return {name: value for name, value in made.found.items() if name in made.plain or value.startswith("code ")}


def source(dataset: Any) -> Uses:
    """Return what an object with __getitem__ makes samples of: its class and its state; of a dataset its fingerprint or id."""
    made = Uses()
    made.module = type(dataset).__module__
    fingerprint = getattr(dataset, "_fingerprint", None)  # of Hugging Face
    if made.module.partition(".")[0] == "rankstore":
        made.found[""] = f"rankstore, {getattr(dataset, 'id', 'a part of a dataset')}"
    elif isinstance(fingerprint, str):
        made.found[""] = f"{type(dataset).__qualname__} {fingerprint}"
    else:
        made.follow("", dataset)
    return made


def difference(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return the first difference, as in "MAX was 400, is 100"; "" if there is none."""
    for name, value in now.items():
        was = before.get(name)
        if was == value:
            continue
        if value.startswith("code ") and (was is None or was.startswith("code ")):
            if was is None:
                continue  # the code that calls it differs too, and says more
            return f"the code of {name} differs" if name else "its code differs"
        return f"{name} was {was}, is {value}" if was is not None else f"{name} is {value}, and was not used"
    gone = next((name for name in before if name not in now), None)
    if gone is not None:
        return f"{gone} was {before[gone]}, and is not used"
    return next((f"{name} is {now[name]}, and was not used" for name in now if name not in before), "")


class Uses:
    """The names that a function uses.

    own: without globals, imports and the contents of installed packages' objects.
    found: {name: value or digest}.
    plain: the names of numbers and texts.
    unfollowed: "name (type)" of each value whose contents cannot be read.
    """

    def __init__(self, own: bool = False) -> None:
        self.own = own
        self.found: dict[str, str] = {}
        self.plain: set[str] = set()
        self.unfollowed: list[str] = []
        self.module = ""
        self._at: dict[int, str] = {}  # first name of each value by identity: ends cycles
        self._named: dict[str, Any] = {}  # the values behind `found`: held, so that Python does not reuse an identity
        self._kept: list[Any] = []  # temporary values, held for the same reason
        self._digests: dict[int, str] = {}  # of entries of large containers, by identity; "itself" while one is computed

    def digest(self) -> str:
        return _digest(self.found)

    def follow(self, name: str, value: Any, depth: int = 0) -> None:
        """Add a value under its name, and everything that it refers to."""
        if name in self.found:
            if _is_same(self._named.get(name, self), value):
                return
            name = next(other for i in itertools.count(2) if (other := f"{name}#{i}") not in self.found)
        self._named[name] = value
        if varies(name, value):
            self._give_up(name, value)
        elif isinstance(value, _PLAIN) or type(value) in (str, bytes):
            self.found[name] = _shown(name, value)
            self.plain.add(name)
        elif id(value) in self._at:
            self.found[name] = f"the same as {self._at[id(value)] or 'itself'}"
        elif depth > DEPTH:
            self._give_up(name, value)
        else:
            self._at[id(value)] = name
            self._follow(name, value, depth + 1)

    def _follow(self, name: str, value: Any, depth: int) -> None:
        if isinstance(value, types.ModuleType):
            self.found[name] = _versioned(value.__name__)
        elif isinstance(value, types.FunctionType) and isinstance(kinds := getattr(value, "registry", None), types.MappingProxyType):
            self.found[name] = "singledispatch"
            for kind, one in kinds.items():
                self.follow(f"{name}[{kind.__module__}.{kind.__qualname__}]", one, depth)
        elif isinstance(value, types.FunctionType):
            self._function(name, value, depth)
        elif isinstance(value, type):
            self._class(name, value, depth)
        elif isinstance(value, functools.partial):
            self.found[name] = "partial"
            self.follow(f"{name}.func".lstrip("."), value.func, depth)
            self.follow(f"{name}.args".lstrip("."), value.args, depth)
            self.follow(f"{name}.keywords".lstrip("."), value.keywords, depth)
        elif isinstance(value, types.MethodType):
            self.found[name] = f"method {value.__name__}"
            self.follow(f"{name}.__func__".lstrip("."), value.__func__, depth)
            self.follow(f"{name}.__self__".lstrip("."), value.__self__, depth)
        elif isinstance(value, (types.BuiltinFunctionType, types.MethodWrapperType)):
            self.found[name] = getattr(value, "__qualname__", value.__name__)
            owner = getattr(value, "__self__", None)
            if owner is not None and not isinstance(owner, types.ModuleType):
                self.follow(f"{name}.__self__".lstrip("."), owner, depth)
        elif hasattr(value, "__wrapped__") and callable(value) and _is_installed(type(value).__module__):  # functools.cache and the like
            self.found[name] = type(value).__qualname__
            self.follow(f"{name}.__wrapped__".lstrip("."), value.__wrapped__, depth)
        elif isinstance(value, (list, tuple, dict, Set, Mapping)):
            self._items(name, value, depth)
            if type(value) not in (list, tuple, dict, set, frozenset):
                self._container(name, value, depth)
        elif type(value).__name__ == "memmap" and getattr(value, "filename", None):  # a file, compared as files are
            self.found[name] = f"{value.dtype}{list(value.shape)} of {os.path.basename(value.filename)} at {value.offset}"
        elif hasattr(value, "dtype") and hasattr(value, "shape"):
            self.found[name] = f"{value.dtype}{list(value.shape)} ({digest.of_value(value)[:16]})"
        else:
            self._object(name, value, depth)

    # ---- code

    def _function(self, name: str, function: types.FunctionType, depth: int) -> None:
        if _is_installed(function.__module__):
            self.found[name] = f"{function.__qualname__} of {_versioned(function.__module__)}"
            return
        bare = bytecode.stripped(function.__code__)
        codes = list(bytecode.codes_of(bare))
        self.found[name] = f"code {_digest([bytecode.compared(code) for code in codes])[:16]}"
        for place, default in enumerate(function.__defaults__ or ()):
            self.follow(f"{name}(default {place})".lstrip(), default, depth)
        for parameter, default in (function.__kwdefaults__ or {}).items():
            self.follow(f"{name}(default {parameter})".lstrip(), default, depth)
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                held = cell.cell_contents
            except ValueError:  # not filled yet
                continue
            if variable in bare.co_freevars:
                self._used(f"{name}.{variable}".lstrip("."), held, bytecode.paths(codes, variable), depth)
        if self.own:
            return
        for variable in bytecode.global_names(codes):
            if variable in function.__globals__:  # else it is a builtin, or undefined
                own = (function.__module__ or "") == self.module
                self._used(variable if own else f"{function.__module__}.{variable}", function.__globals__[variable],
                           bytecode.paths(codes, variable), depth)
        for module in dict.fromkeys(one for code in codes for one in bytecode.imported(code, function.__globals__)):
            self._imported(module, codes, depth)

    def _used(self, name: str, value: Any, paths: list[bytecode.Path], depth: int) -> None:
        """Add a variable of the code. Of a module or a namespace, add only the attributes that the code names, if it does nothing else
        with it."""
        own = isinstance(value, types.ModuleType) and not _is_installed(value.__name__)
        if not own and not isinstance(value, _NAMESPACES):
            self.follow(name, value, depth)
        elif () in paths or not paths:
            self._give_up(name, value) if own else self.follow(name, value, depth)
        else:
            for attribute in dict.fromkeys(path[0] for path in paths):
                if hasattr(value, attribute):
                    rest = [path[1:] for path in paths if path[0] == attribute]
                    self._used(f"{name}.{attribute}", getattr(value, attribute), rest, depth)

    def _imported(self, module: str, codes: list[types.CodeType], depth: int) -> None:
        """Add a module that the code itself imports. Of the user's own modules, add only what the code names."""
        there = sys.modules.get(module)
        if _is_installed(module):
            self.found[module] = _versioned(module)
        elif there is None:
            self.found[module] = "a module, not followed"
            self.unfollowed.append(f"{module} (a module that is imported later)")
        else:
            self._named_in(module, there, list(dict.fromkeys(one for code in codes for one in code.co_names)), depth, set())

    def _named_in(self, name: str, module: types.ModuleType, names: list[str], depth: int, seen: set[str]) -> None:
        """Add the attributes of a module of the user's that have one of these names, and theirs if they are such modules."""
        seen.add(module.__name__)
        for attribute in names:
            value = getattr(module, attribute, self)
            if isinstance(value, types.ModuleType) and not _is_installed(value.__name__):
                if value.__name__ not in seen:
                    self._named_in(f"{name}.{attribute}", value, names, depth, seen)
            elif value is not self:
                self.follow(f"{name}.{attribute}", value, depth)

    def _class(self, name: str, kind: type, depth: int) -> None:
        if _is_installed(kind.__module__):
            self.found[name] = f"{kind.__qualname__} of {_versioned(kind.__module__)}"
            return
        self.found[name] = f"class {kind.__module__}.{kind.__qualname__}"
        if not _is_installed(type(kind).__module__):
            self.follow(f"{name}(metaclass)", type(kind), depth)
        for base in kind.__bases__:
            if base is not object:
                self.follow(f"{name}({base.__qualname__})", base, depth)
        for attribute, value in sorted(vars(kind).items()):
            if attribute.startswith("__") and not isinstance(value, _METHODS):
                continue  # __module__, __doc__, __dict__, ...
            if isinstance(value, (staticmethod, classmethod)):
                value = value.__func__
            elif isinstance(value, property):
                value = value.fget
            elif isinstance(value, functools.cached_property):
                value = value.func
            elif isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType)):
                continue
            elif type(value).__module__ == "_abc":
                continue
            self.follow(f"{name}.{attribute}", value, depth)

    # ---- data

    def _items(self, name: str, value: Any, depth: int) -> None:
        kind, size = type(value).__name__, len(value)
        if isinstance(value, Set):
            self.found[name] = f"{kind} of {size} ({_digest(sorted(self._apart(one, depth) for one in value))[:16]})"
            return
        pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
        if size <= EXPANDED:
            self.found[name] = f"{kind} of {size}"
            for key, one in pairs:
                self.follow(f"{name}[{key!r}]" if isinstance(key, (str, int)) else f"{name}[{self._apart(key, depth)[:16]}]", one, depth)
            return
        flat: Iterator[Any] = ([self._apart(key, depth), self._apart(one, depth)] for key, one in pairs)
        self.found[name] = f"{kind} of {size} ({_digest(list(flat))[:16]})"

    def _apart(self, value: Any, depth: int) -> str:
        """Return a value's digest without names (a plain value: its type and text)."""
        if isinstance(value, _PLAIN) or type(value) in (str, bytes):
            return f"{type(value).__name__} {value!r}"
        if id(value) not in self._digests:
            self._digests[id(value)] = "itself"
            self._kept.append(value)
            alone = Uses()
            alone._digests, alone._kept = self._digests, self._kept
            alone.follow("", value, depth)
            self.unfollowed += alone.unfollowed
            self._digests[id(value)] = alone.digest()
        return self._digests[id(value)]

    def _container(self, name: str, value: Any, depth: int) -> None:
        """Add what an object of a subclass of list, tuple, dict or set has beside its items."""
        kind = type(value)
        if not _is_installed(kind.__module__):
            self.follow(f"class {kind.__qualname__}", kind, depth)
        beside = _attributes_of(value)
        if getattr(value, "default_factory", None) is not None:
            beside["default_factory"] = value.default_factory
        for attribute, one in beside.items():
            self.follow(f"{name}.{attribute}".lstrip("."), one, depth)

    def _object(self, name: str, value: Any, depth: int) -> None:
        kind = type(value)
        self.found[name] = f"{kind.__module__}.{kind.__qualname__}"
        if not _is_installed(kind.__module__):
            self.follow(f"class {kind.__qualname__}", kind, depth)
        elif kind.__module__ != "builtins":
            self.found[name] += f" of {_versioned(kind.__module__)}"
        if self.own and _is_installed(kind.__module__):
            return
        state = _state(value)
        if state is None:
            self._give_up(name, value)
            return
        self._kept.append(state)
        for attribute, one in state.items():
            self.follow(f"{name}.{attribute}".lstrip("."), one, depth)
        if kind.__module__ == "numpy" and kind.__name__ == "ufunc":  # of numpy.frompyfunc, which shows its function to nobody else
            for one in gc.get_referents(value):
                if isinstance(one, types.FunctionType):
                    self.follow(f"{name}.func".lstrip("."), one, depth)

    def _give_up(self, name: str, value: Any) -> None:
        kind = type(value)
        self.found[name] = f"{kind.__module__}.{kind.__qualname__}, not followed"
        self.unfollowed.append(f"{name or 'it'} ({kind.__qualname__})")


def _is_same(known: Any, value: Any) -> bool:
    return known is value or (type(known) is type(value) and isinstance(value, (*_PLAIN, str, bytes)) and bool(known == value))


def _attributes_of(value: Any) -> dict[str, Any]:
    own = dict(vars(value)) if hasattr(value, "__dict__") else {}
    slots = [slot for kind in type(value).__mro__ for slot in _slots(kind)]
    own.update({slot: getattr(value, slot) for slot in slots if hasattr(value, slot)})
    return own


def _holds_more(kind: type) -> bool:
    """Return True if objects of the class hold more than their attributes: a base is written in C (str, date) or pickles in its own way."""
    for base in kind.__mro__:
        if base is object:
            continue
        if not base.__flags__ & _HEAP_TYPE or any(name in vars(base) for name in ("__reduce__", "__reduce_ex__", "__getstate__")):
            return True
    return False


def _state(value: Any) -> dict[str, Any] | None:
    """Return an object's attributes, and what pickle would write beside them; None if neither is known."""
    own = _attributes_of(value)
    if (own or not _is_installed(type(value).__module__)) and not _holds_more(type(value)):
        return own
    try:
        reduce = copyreg.dispatch_table.get(type(value))
        reduced: Any = reduce(value) if reduce is not None else value.__reduce_ex__(4)
    except Exception:  # a lock or a file: each type raises its own error
        return own or None
    if isinstance(reduced, str):
        return {**own, "": reduced}
    _, arguments, *rest = reduced
    listed = [list(one) if hasattr(one, "__next__") else one for one in rest[:3]]
    return {**own, "arguments": arguments, **{f"state {i}": one for i, one in enumerate(listed) if one is not None}}


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(one for one in slots if one not in ("__dict__", "__weakref__"))


@functools.cache
def _installed_places() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def _is_installed(module: str | None) -> bool:
    """Return True if the module comes with Python or an installed package, not from the user's own files."""
    top = (module or "").partition(".")[0]
    if top in sys.builtin_module_names or top in sys.stdlib_module_names or top == "rankstore":
        return top != "__main__"
    file = getattr(sys.modules.get(top), "__file__", None) or ""
    return top != "__main__" and bool(file) and (file.startswith(_installed_places()) or "site-packages" in file or "dist-packages" in file)


@functools.cache
def _versioned(module: str) -> str:
    """Return a module's name and the version of the package that it came with."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return f"{module} of Python {sys.version_info[0]}.{sys.version_info[1]}"
    try:
        version = importlib.metadata.version(top)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        version = getattr(sys.modules.get(top), "__version__", None) or ", ".join(
            importlib.metadata.version(name) for name in importlib.metadata.packages_distributions().get(top, ()))
    return f"{module} {version}".rstrip()


def _shown(name: str, value: Any) -> str:
    if not isinstance(value, (str, bytes)):
        return repr(value)
    if len(value) <= SHOWN and not any(word in name.lower() for word in _SECRET):
        return repr(value)
    data = value.encode(errors="surrogatepass") if isinstance(value, str) else value
    return f"{type(value).__name__} of {len(value)} ({hashlib.blake2b(data, digest_size=8).hexdigest()})"


def _digest(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(errors="surrogatepass"), digest_size=16).hexdigest()
