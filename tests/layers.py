# SPDX-License-Identifier: Apache-2.0
"""Reads every #include and fails on a breach of the layers (CONTRIBUTING.md, "A map of `src/`"); layers_python.py reads every import."""
import functools
import os
import re
import shutil
import subprocess
import tempfile

import layers_planted
import layers_python

# folder -> folders it may include from, beside itself
MAY_SEE = {
    "base": [],
    "metrics": ["base"],
    "transport": ["base"],
    "shard": ["base"],
    "home": ["base", "shard"],
    "codec": ["base", "shard"],
    "index": ["base"],
    "plan": ["base"],
    "collate": ["base", "shard"],
    "group": ["base", "transport"],
    "mpi": ["base", "group"],
    "exchange": ["base", "transport", "group"],
    "ingest": ["base", "shard", "codec", "home"],
    "export": ["base", "shard", "codec"],
    "fetch": ["base", "transport", "shard", "home", "collate"],
    "dataset": ["base", "shard", "group"],
    "staging": ["base", "transport", "shard", "home", "group", "dataset"],
    "store": ["base", "shard", "index", "plan", "group", "exchange", "fetch", "dataset", "metrics", "home", "staging"],
    "builder": ["base", "shard", "group", "exchange", "ingest", "dataset", "store", "home"],
    "manage": ["base", "transport", "shard", "codec", "group", "exchange", "export", "dataset", "store", "home", "staging"],
}
# folder -> headers of include/rankstore/ that its files may see, also through others
PUBLIC = {
    "base": ["base"],
    "metrics": ["base"],
    "transport": ["base", "worker"],
    "shard": ["base", "schema"],
    "home": ["base", "schema"],
    "codec": ["base", "schema"],
    "index": ["base", "index"],
    "plan": ["base", "mix", "plan"],
    "collate": ["base", "schema", "collate"],
    "group": ["base", "group"],
    "mpi": ["base", "group"],
    "exchange": ["base", "group"],
    "ingest": ["base", "schema", "input"],
    "export": ["base", "schema"],
    "fetch": ["base", "schema", "collate", "batch"],
    "dataset": ["base", "schema", "group", "verify"],
    "staging": ["base", "schema", "group", "verify"],
    "store": ["base", "schema", "collate", "batch", "group", "index", "mix", "plan", "store", "epoch"],
    "builder": ["base", "schema", "collate", "batch", "group", "index", "mix", "plan", "store", "build", "home", "input", "gather"],
    "manage": ["base", "schema", "collate", "batch", "group", "index", "mix", "plan", "store", "export", "manage", "verify", "home"],
}
ONE_FILE_ONLY = ["lmdb.h", "mpi.h", "uv.h", "xxhash.h", "xxh_x86dispatch.h", "sodium.h",
                 "archive.h", "archive_entry.h", "zlib.h", "simdjson.h"]
COMMENTS = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


@functools.cache
def strip(text):
    return COMMENTS.sub(" ", text)


@functools.cache
def includes(text):
    return re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', text, re.M)


def sources(top):
    """{path from `top` on: text without comments} of C files."""
    found = {}
    for folder, _, files in os.walk(top):
        for name in sorted(files):
            if name.endswith((".c", ".cc", ".h")):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    found[os.path.relpath(path, top)] = strip(file.read())
    return found


def report(name, problems):
    problems = list(problems)
    print(f"FAIL {name}: {'; '.join(problems)}" if problems else f"ok {name}")


# ---- the C files -------------------------------------------------------------------------------------------------------

def folder_of(path):
    return path.split(os.sep)[0]


def folder_breaches(src):
    """Private headers of folders that the includer's folder does not name."""
    for path, text in src.items():
        own = folder_of(path)
        if own not in MAY_SEE:
            yield f"src/{path}: no layer is named {own}"
            continue
        for header in includes(text):
            layer = header.split("/")[0] if "/" in header else None
            if layer in MAY_SEE and layer != own and layer not in MAY_SEE[own]:
                yield f"src/{path} includes {header}"


def include_edges(src):
    """Folder -> other folders, by the includes themselves."""
    edges = {}
    for path, text in src.items():
        own = folder_of(path)
        edges.setdefault(own, set()).update(
            header.split("/")[0] for header in includes(text) if header in src and header.split("/")[0] != own)
    return edges


@functools.cache
def declared(text):
    """Names that a public header brings: functions, types, constants."""
    names = set(re.findall(r"\bRKS_API\b[^;]*?\b(rks_\w+)\s*\(", text))
    names.update(re.findall(r"\}\s*(rks_\w+)\s*;", text))
    names.update(re.findall(r"\btypedef\s+struct\s+\w+\s+(rks_\w+)\s*;", text))
    names.update(re.findall(r"\btypedef\b[^;{]*\(\*(rks_\w+)\)", text))
    names.update(re.findall(r"#\s*define\s+(RKS_\w+)", text))
    for body in re.findall(r"\benum\b[^{;]*\{([^}]*)\}", text):
        names.update(re.findall(r"\bRKS_\w+\b", body))
    return names


@functools.cache
def names_in(text):
    return set(re.findall(r"\b(?:rks|RKS)_\w+", text))


def unused_public(files, public):
    """Included headers of `public` of which a file uses no name. rankstore.h is nobody's in src/."""
    names = {header: declared(text) for header, text in public.items()}
    for path, text in files.items():
        used = names_in(text)
        for header in includes(text):
            if header == "rankstore.h":
                yield f"{path} includes {header}"
            elif header in names and not names[header] & used:
                yield f"{path} includes {header} and uses nothing of it"


def seen_public(path, src, public, seen):
    """Public headers that a file sees, also through others."""
    for header in includes(src[path] if path in src else public[path]):
        if header not in seen and (header in src or header in public):
            seen.add(header)
            seen_public(header, src, public, seen)
    return {header for header in seen if header in public}


def public_breaches(src, public):
    for path in src:
        allowed = PUBLIC.get(folder_of(path), [])
        for header in sorted(seen_public(path, src, public, set())):
            if header[len("rankstore/"):-len(".h")] not in allowed:
                yield f"src/{path} sees {header}"


def shared_libraries(src):
    for header in ONE_FILE_ONLY:
        users = [path for path, text in src.items()
                 if any(os.path.basename(name) == header and name not in src for name in includes(text))]
        if len(users) > 1:
            yield f"{header}: {', '.join(users)}"


def map_errors(page):
    """Rows of the map in CONTRIBUTING.md that differ from the table above."""
    rows = dict(re.findall(r"^\| `(\w+)/` \|[^|]*\|([^|]*)\|", page, re.M))
    for folder, named in MAY_SEE.items():
        told = {word.strip() for word in rows.get(folder, "").split(",") if word.strip()}
        if folder not in rows or told != set(named):
            yield f"CONTRIBUTING.md: {folder}/ sees {', '.join(sorted(told)) or 'nothing'}, not {', '.join(sorted(named)) or 'nothing'}"


def check(top):
    """{rule: what breaks it} of the tree in `top`."""
    src, tools = sources(os.path.join(top, "src")), sources(os.path.join(top, "tools"))
    public = {path: text for path, text in sources(os.path.join(top, "include")).items() if path != "rankstore.h"}
    with open(os.path.join(top, "CONTRIBUTING.md"), encoding="utf-8") as file:
        page = file.read()
    return {
        "each_folder_includes_only_from_the_layers_below": list(folder_breaches(src)),
        "no_folders_include_each_other_in_a_circle": layers_python.circles(include_edges(src)) + layers_python.circles(MAY_SEE),
        "each_folder_sees_only_its_public_headers": list(public_breaches(src, public)),
        "each_file_uses_the_public_headers_that_it_includes": [*unused_public(src, public), *unused_public(public, public)],
        "each_library_is_included_by_one_file": list(shared_libraries(src)),
        "the_command_line_sees_only_the_public_header": [
            f"tools/{path} includes {header}" for path, text in tools.items() for header in includes(text)
            if header.split("/")[0] in [*MAY_SEE, "rankstore"]],
        "the_map_says_who_sees_whom": list(map_errors(page)),
        **layers_python.check(os.path.join(top, "python_bindings", "rankstore"), page),
    }


# ---- names: a profile or a backtrace says which function it was ----------------------------------------------------------

STATIC_FUNCTION = re.compile(r"^static\b[^;={}()]*?\b(\w+)\((?=[^;{]*\)[^;{]*\{)", re.M)
FILES_MOST = 2


def shared_names(tops):
    """Names of static functions that more than FILES_MOST files define."""
    users = {}
    for top in tops:
        for path, text in sources(top).items():
            for name in STATIC_FUNCTION.findall(text):
                users.setdefault(name, set()).add(os.path.join(top, path))
    return [f"{name}: {', '.join(sorted(paths))}" for name, paths in sorted(users.items()) if len(paths) > FILES_MOST]


def planted_shared_name():
    with tempfile.TemporaryDirectory() as folder:
        for name in "abc":
            with open(os.path.join(folder, name + ".c"), "w", encoding="utf-8") as file:
                file.write(f"static int once_{name}(void)\n{{\n}}\n"
                           + ("static bool pair(void)\n{\n}\n" if name != "c" else "") +
                           "static const char *fill(int wide,\n                        int high)\n{\n    return 0;\n}\n")
        found = shared_names([folder])
    return [] if len(found) == 1 and found[0].startswith("fill: ") else [str(found)]


# ---- the tree: texts alone, but for what tests read ----------------------------------------------------------------------

BINARY_IN = ("tests/fuzz/corpus/", "tests/fixtures/")


def binary_files(top):
    """Tracked files with a NUL in their first 8,000 bytes, outside of BINARY_IN; none without git or a checkout."""
    if shutil.which("git") is None:
        return
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=top, capture_output=True, text=True).stdout
    for path in listed.split("\0")[:-1]:
        if os.path.isfile(os.path.join(top, path)) and not path.startswith(BINARY_IN):
            with open(os.path.join(top, path), "rb") as file:
                if b"\0" in file.read(8000):
                    yield path


def planted_binary_file():
    if shutil.which("git") is None:
        return []
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (("a.c", b"int a;\n"), ("b.whl", b"PK\0"), (BINARY_IN[0] + "c", b"\0")):
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            with open(os.path.join(folder, name), "wb") as file:
                file.write(content)
        for command in (["init", "-q"], ["add", "."]):
            subprocess.run(["git", *command], cwd=folder, check=True)
        found = list(binary_files(folder))
    return [] if found == ["b.whl"] else [str(found)]


# ---- licences ------------------------------------------------------------------------------------------------------------

LICENCE = "SPDX-License-Identifier: Apache-2.0"


def unlicensed(tops):
    """C files that do not name the licence in their first 200 characters."""
    missing = []
    for top in tops:
        for folder, _, files in os.walk(top):
            for name in sorted(files):
                path = os.path.join(folder, name)
                if not name.endswith((".c", ".h")):
                    continue
                with open(path, encoding="utf-8") as file:
                    if LICENCE not in file.read(200):
                        missing.append(path)
    return missing


def planted_unlicensed():
    """Of four files these two: one without the line, and one that has it far below."""
    planted = {"good.c": f"/* {LICENCE} */\n", "none.c": "/* a file */\n", "late.h": " " * 200 + LICENCE + "\n", "page.md": "no code\n"}
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "below"))
        for name, text in planted.items():
            with open(os.path.join(folder, "below", name), "w", encoding="utf-8") as file:
                file.write(text)
        found = [os.path.basename(path) for path in unlicensed([folder])]
    return [] if found == ["late.h", "none.c"] else [str(found)]


def main():
    for rule, problems in check(".").items():
        report(rule, problems)
    report("a_planted_breach_of_each_rule_is_found", layers_planted.missed(check))
    report("no_static_function_name_is_in_more_than_two_files", shared_names(("src", "tools", "python_bindings/src")))
    report("a_planted_name_in_three_files_is_found", planted_shared_name())
    report("no_binary_file_is_in_the_tree", binary_files("."))
    report("a_planted_binary_file_is_found", planted_binary_file())
    report("every_file_names_its_licence", unlicensed(("src", "include", "tools", "tests")))
    report("a_planted_file_without_a_licence_is_found", planted_unlicensed())


if __name__ == "__main__":
    main()
