# SPDX-License-Identifier: Apache-2.0
"""Reads every #include and fails on a breach of the layers (README, "A map of src/")."""
import ast
import os
import re
import tempfile

# folder -> folders it may include from, beside itself
MAY_SEE = {
    "base": [],
    "transport": ["base"],
    "shard": ["base"],
    "codec": ["base", "shard"],
    "index": ["base"],
    "plan": ["base"],
    "collate": ["base", "shard"],
    "group": ["base", "transport"],
    "mpi": ["base", "group"],
    "exchange": ["base", "transport", "group"],
    "ingest": ["base", "shard", "codec"],
    "export": ["base", "shard", "codec"],
    "fetch": ["base", "transport", "shard", "collate"],
    "dataset": ["base", "shard", "group"],
    "store": ["base", "shard", "index", "plan", "group", "exchange", "fetch", "dataset"],
    "builder": ["base", "shard", "group", "exchange", "ingest", "dataset", "store"],
    "manage": ["base", "transport", "shard", "codec", "group", "exchange", "export", "dataset", "store"],
}
ONE_FILE_ONLY = ["lmdb.h", "nccl.h", "cuda.h", "mpi.h", "uv.h", "xxhash.h", "xxh_x86dispatch.h", "sodium.h",
                 "archive.h", "archive_entry.h", "zlib.h"]


def includes(path):
    with open(path, encoding="utf-8") as file:
        return re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', file.read(), re.M)


def sources(top):
    for folder, _, files in os.walk(top):
        for name in sorted(files):
            if name.endswith((".c", ".h")):
                yield os.path.join(folder, name)


def report(name, problems):
    print(f"FAIL {name}: {'; '.join(problems)}" if problems else f"ok {name}")


# ---- the Python package: no circle of imports, wherever in a file they stand -------------------------------------------

def python_modules(top):
    """{dotted name: path} of a package's files."""
    found = {}
    for folder, _, files in os.walk(top):
        for name in sorted(files):
            if name.endswith((".py", ".pyi")):  # the extension has but its stub here
                path = os.path.join(folder, name)
                parts = os.path.splitext(os.path.relpath(path, top))[0].split(os.sep)
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def python_imports(modules, name, package):
    """Modules of the package that one imports: at the top, in functions, and under TYPE_CHECKING."""
    with open(modules[name], encoding="utf-8") as file:
        tree = ast.parse(file.read())
    is_package = os.path.basename(modules[name]) == "__init__.py"
    own = [part for part in name.split(".") if part]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            named = [alias.name.split(".") for alias in node.names]
            yield from (".".join(parts[1:]) for parts in named if parts[0] == package)
        elif isinstance(node, ast.ImportFrom):
            base = (node.module or "").split(".") if node.module else []
            if node.level > 0:
                base = own[:len(own) - node.level + is_package] + base
            elif base[:1] == [package]:
                base = base[1:]
            else:
                continue
            for alias in node.names:  # a module, or a name in one
                whole = ".".join([*base, alias.name])
                yield whole if whole in modules else ".".join(base)


def python_import_circles(top):
    """A text for each circle: "a -> b -> a"."""
    package, modules = os.path.basename(top), python_modules(top)
    edges = {name: sorted({other for other in python_imports(modules, name, package) if other in modules and other != name})
             for name in modules}
    circles, done, path = [], set(), []

    def visit(name):
        if name in path:
            circles.append(" -> ".join([*path[path.index(name):], name]))
        elif name not in done:
            path.append(name)
            for other in edges[name]:
                visit(other)
            path.pop()
            done.add(name)

    for name in sorted(edges):
        visit(name)
    return circles


def planted_import_circles():
    """What the check above says about circles that are planted: it must find each."""
    planted = {"at the top": "from . import b\n", "in a function": "def f():\n    from .b import g\n",
               "for types": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from planted.b import g\n"}
    missed = []
    for where, text in planted.items():
        with tempfile.TemporaryDirectory() as folder:
            top = os.path.join(folder, "planted")
            os.mkdir(top)
            for name, content in (("__init__", ""), ("a", text), ("b", "from .a import f\n"), ("c", "import os\nfrom . import a\n")):
                with open(os.path.join(top, name + ".py"), "w", encoding="utf-8") as file:
                    file.write(content)
            if python_import_circles(top) != ["a -> b -> a"]:
                missed.append(f"a circle {where}: {python_import_circles(top)}")
    return missed


def main():
    breaches, users = [], {header: [] for header in ONE_FILE_ONLY}
    for path in sources("src"):
        own = path.split(os.sep)[1]
        for header in includes(path):
            if header in users:
                users[header].append(path)
            layer = header.split("/")[0] if "/" in header else None
            if layer in MAY_SEE and layer != own and layer not in MAY_SEE[own]:
                breaches.append(f"{path} includes {header}")
    report("each_folder_includes_only_from_the_layers_below", breaches)
    report("each_library_is_included_by_one_file",
           [f"{header}: {', '.join(paths)}" for header, paths in users.items() if len(paths) > 1])
    report("the_command_line_sees_only_the_public_header",
           [f"{path} includes {header}" for path in sources("tools") for header in includes(path)
            if header.split("/")[0] in MAY_SEE])
    report("python_modules_import_each_other_in_no_circle", python_import_circles("python_bindings/rankstore"))
    report("a_planted_circle_of_imports_is_found", planted_import_circles())
    missing = []
    for top in ("src", "include", "tools", "tests"):
        for path in sources(top):
            with open(path, encoding="utf-8") as file:
                if "SPDX-License-Identifier: Apache-2.0" not in file.read(200):
                    missing.append(path)
    report("every_file_names_its_licence", missing)


if __name__ == "__main__":
    main()
