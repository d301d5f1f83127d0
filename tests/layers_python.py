# SPDX-License-Identifier: Apache-2.0
"""Reads every import of the Python package, wherever in a file it stands: at the top, in a function, for types alone. Part of layers.py."""
import ast
import functools
import os
import re

# package -> packages that its modules may import from, beside their own; all may use ANYWHERE
MAY_SEE = {
    "_schema": [],
    "_distributed": [],
    "_batching": ["_schema"],
    "_sources": ["_schema", "_stores"],
    "_gather": ["_distributed", "_schema"],
    "_provenance": ["_sources"],
    "_plan": ["_schema", "_distributed", "_batching"],
    "_loader": ["_schema", "_distributed", "_batching", "_plan"],
    "_integrations": ["_batching", "_plan", "_loader"],
    "_dataset": ["_schema", "_distributed", "_provenance", "_batching", "_plan", "_loader", "_stores"],
    "_stores": [],
    "_build": ["_schema", "_distributed", "_sources", "_provenance", "_batching", "_dataset", "_stores"],
}
ANYWHERE = ["errors", "_core"]
# what users import, the helper of stores, and the extension
FRONT = {"": [*MAY_SEE, *ANYWHERE], "hf": ["_integrations"], "store_helper": ["_stores"], "errors": [], "_core": []}


def circles(edges):
    """A text for each circle: "a -> b -> a". `edges`: name -> names."""
    found, done, path = [], set(), []

    def visit(name):
        if name in path:
            found.append(" -> ".join(one or "rankstore" for one in [*path[path.index(name):], name]))
        elif name not in done:
            path.append(name)
            for other in sorted(edges.get(name, ())):
                visit(other)
            path.pop()
            done.add(name)

    for name in sorted(edges):
        visit(name)
    return found


def modules_in(top):
    """{dotted name, "" for the package itself: its text} of the files in `top`."""
    found = {}
    for folder, _, files in os.walk(top):
        for name in sorted(files):
            if name.endswith((".py", ".pyi")):  # the extension has but its stub here
                path = os.path.join(folder, name)
                parts = os.path.splitext(os.path.relpath(path, top))[0].split(os.sep)
                with open(path, encoding="utf-8") as file:
                    found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file.read()
    return found


@functools.cache
def imports_of(text):
    """(level, module, name) of each import; name is None for `import module`, and for one by a text: import_module("..module")."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [(0, alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(node.level, node.module or "", alias.name) for alias in node.names]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called in ("import_module", "__import__"):
                whole = node.args[0].value
                found.append((len(whole) - len(whole.lstrip(".")), whole.lstrip("."), None))
    return found


def imported(modules, name):
    """Modules of the package that one imports."""
    packages = {one.rpartition(".")[0] for one in modules}
    own = [part for part in name.split(".") if part]
    here = own if name in packages else own[:-1]
    for level, module, what in imports_of(modules[name]):
        parts = [part for part in module.split(".") if part]
        if level > 0:
            base = here[:len(here) - level + 1] + parts
        elif parts[:1] == ["rankstore"]:
            base = parts[1:]
        else:
            continue
        whole = ".".join([*base, what] if what else base)
        yield whole if whole in modules else ".".join(base)  # a module, or a name in one


def package_of(name):
    return name.split(".")[0]


def breaches(modules):
    """Imports from packages that the importer's package does not name."""
    for name in modules:
        own = package_of(name)
        if own not in MAY_SEE and own not in FRONT:
            yield f"{name}: no package is named {own}"
            continue
        allowed = {own, *FRONT[own]} if own in FRONT else {own, *MAY_SEE[own], *ANYWHERE}
        for other in sorted(set(imported(modules, name))):
            if package_of(other) not in allowed:
                yield f"{name or 'rankstore'} imports {other or 'rankstore'}"


def edges_of(modules, group):
    """{group(module): groups of what it imports, less its own}."""
    edges = {}
    for name in modules:
        edges.setdefault(group(name), set()).update(
            group(other) for other in imported(modules, name) if other in modules and group(other) != group(name))
    return edges


def map_errors(page):
    """Rows of the map in CONTRIBUTING.md that differ from MAY_SEE."""
    rows = dict(re.findall(r"^\| `(_\w+)` \|[^|]*\|([^|]*)\|", page, re.M))
    for package in sorted({*MAY_SEE, *rows}):
        told = {word.strip(" `") for word in rows.get(package, "").split(",") if word.strip()}
        named = set(MAY_SEE.get(package, ()))
        if package not in rows or package not in MAY_SEE or told != named:
            yield f"CONTRIBUTING.md: {package} sees {', '.join(sorted(told)) or 'nothing'}, not {', '.join(sorted(named)) or 'nothing'}"


def check(top, page):
    """{rule: what breaks it} of the package in `top`; `page` is CONTRIBUTING.md."""
    modules = modules_in(top)
    return {
        "each_python_package_imports_only_from_those_below": list(breaches(modules)),
        "no_python_packages_import_each_other_in_a_circle": circles(edges_of(modules, package_of)) + circles(MAY_SEE),
        "no_python_modules_import_each_other_in_a_circle": circles(edges_of(modules, str)),
        "the_map_says_which_package_sees_which": list(map_errors(page)),
    }
