# SPDX-License-Identifier: Apache-2.0
"""Files inside a folder form no large circle, no function is too complex or has too many parameters, and names are not shared.

A .c file needs another one of its folder if it calls its functions, any file needs a header whose types it uses. Files that need each
other, directly or through others, are a circle: none of them can be read or tested without all of them."""
import os
import re
import shutil
import subprocess
import tempfile

from support.report import run_all

MOST_FILES = 5
COMPLEXITY, PARAMETERS = 20, 7
MOST_TAKERS = 20
# Functions above it that are still to be divided: none may be added, and one that is divided leaves the list.
MEASURED = ("src", "tools/rankstore", "python_bindings/src")
NOISE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)
FUNCTION = re.compile(r"^(?!static\b|typedef\b|struct\b[^;()]*\{|enum\b)[A-Za-z_][\w \*]*?[ \*]\(?(\w+)\)?\((?:[^;{}]*)\)\n\{", re.M)
TYPES = (re.compile(r"^(?:typedef )?(?:struct|enum|union) (\w+) \{", re.M), re.compile(r"^\} (\w+);", re.M),
         re.compile(r"^typedef [^;{]*\(\*(\w+)\)", re.M))
OPAQUE = re.compile(r"^typedef struct (\w+) \1;", re.M)  # its users need this line, and not the definition


def read(folder):
    """Return {file: text without comments and strings}."""
    found = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith((".c", ".cc", ".h")):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                found[name] = "\n" + NOISE.sub(" ", file.read())
    return found


def needs(files):
    """Return {file: {file that it needs: names that it takes from there}}."""
    functions, types = {}, {}
    opaque = {name for file, text in files.items() if file.endswith(".h") for name in OPAQUE.findall(text)}
    for file, text in files.items():
        if file.endswith(".h"):
            types.update((name, file) for pattern in TYPES for name in pattern.findall(text) if name not in opaque)
            types.update((name, file) for name in OPAQUE.findall(text))
        else:
            functions.update((name, file) for name in FUNCTION.findall(text))
    edges = {file: {} for file in files}
    for file, text in files.items():
        home = types if file.endswith(".h") else {**types, **functions}  # a header declares functions and calls none
        for name in set(re.findall(r"\b[A-Za-z_]\w*\b", text)):
            if home.get(name, file) != file and name not in OPAQUE.findall(text):
                edges[file].setdefault(home[name], set()).add(name)
    return edges


def reached(edges, start):
    seen, left = set(), [start]
    while left:
        for other in edges[left.pop()]:
            if other not in seen:
                seen.add(other)
                left.append(other)
    return seen


def circles(edges):
    """Return the circles, each a sorted tuple of files."""
    beyond = {file: reached(edges, file) for file in edges}
    return sorted({tuple(sorted(other for other in edges if other in beyond[file] and file in beyond[other]))
                   for file in edges if file in beyond[file]})


def folders(top):
    return sorted(folder for folder, _, names in os.walk(top) if any(name.endswith(".c") for name in names))


def large_circles(top):
    for folder in folders(top):
        edges = needs(read(folder))
        for circle in circles(edges):
            if len(circle) > MOST_FILES:
                inside = [f"{one} -> {other}: {', '.join(sorted(names))}" for one in circle for other, names in sorted(edges[one].items())
                          if other in circle]
                yield f"{folder}: {len(circle)} files need each other: {', '.join(circle)}\n  " + "\n  ".join(inside)


def large_functions(*tops):
    """What lizard warns of: "FILE:LINE: NAME ..."."""
    done = subprocess.run(["lizard", "-l", "c", "-C", str(COMPLEXITY), "-a", str(PARAMETERS), "-w", *tops], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
    assert done.returncode in (0, 1), done.stdout
    return done.stdout.splitlines()


def no_circle_has_more_than_five_files():
    assert len(folders("src")) > 15, folders("src")
    wrong = list(large_circles("src"))
    assert not wrong, "\n".join(wrong)


def no_function_is_too_complex_or_has_too_many_parameters():
    wrong = large_functions(*MEASURED)
    assert not wrong, "\n".join([f"above complexity {COMPLEXITY} or {PARAMETERS} parameters:", *wrong])


def lizard_is_the_one_that_is_pinned():
    with open("tools/requirements-lint.txt", encoding="utf-8") as file:
        pinned = re.search(r"^lizard==(\S+)$", file.read(), re.M).group(1)
    there = shutil.which("lizard")
    said = subprocess.run([there, "--version"], text=True, stdout=subprocess.PIPE, timeout=60).stdout if there else "none"
    assert pinned == said.strip(), f"lizard {pinned} is needed, not {said.strip()}: pip install -r tools/requirements-lint.txt"


def poor_names(top):
    """File names that stand in two folders, and headers that are named by who sees them, not by what they hold."""
    places = {}
    for folder, _, names in os.walk(top):
        for name in names:
            if name.endswith((".c", ".cc", ".h")):
                places.setdefault(name, []).append(os.path.join(folder, name))
    for name, found in sorted(places.items()):
        if len(found) > 1:
            yield f"{' and '.join(sorted(found))}: one name for two files"
        if re.search(r"inside|internal", name):
            yield f"{found[0]}: name what the file holds"


def takers(*tops):
    """Functions whose names begin with take_: most have a verb that says more."""
    return sorted({(file, name) for top in tops for folder in folders(top) for file, text in read(folder).items()
                   for name in re.findall(r"^static\b[^;(){}]*?[ \*](take_\w+)\([^;{}]*\)\n\{", text, re.M)})


def files_have_names_of_their_own():
    wrong = list(poor_names("src"))
    assert not wrong, "\n".join(wrong)


def few_functions_only_take():
    found = takers(*MEASURED)
    assert len(found) <= MOST_TAKERS, f"{len(found)} functions begin with take_, at most {MOST_TAKERS}: {found}"


def bare_prefetches(top):
    """Files that prefetch without base/cache_line.h: GCC may drop those prefetches."""
    return [file for folder in folders(top) for file, text in read(folder).items()
            if "__builtin_prefetch" in text and file != "cache_line.h"]


def prefetches_are_those_that_the_compiler_keeps():
    wrong = bare_prefetches("src")
    assert not wrong, f"call rks_prefetch in place of __builtin_prefetch: {wrong}"


def planted(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(text)


def a_planted_circle_is_found():
    """Six files whose functions call each other in turn, and six headers that use each other's types."""
    with tempfile.TemporaryDirectory() as folder:
        for i in range(6):
            planted(folder, f"f{i}.c", f"int f{i}(void)\n{{\n    return f{(i + 1) % 6}();\n}}\n")
        assert len(list(large_circles(folder))) == 1
        planted(folder, "f5.c", "int f5(void)\n{\n    return 1; /* f0() */\n}\n")
        assert not list(large_circles(folder))
        for i in range(6):
            planted(folder, f"t{i}.h", f"typedef struct t{i} {{\n    struct t{(i + 1) % 6} *next;\n}} t{i};\n")
        assert len(list(large_circles(folder))) == 1


def planted_functions_are_found():
    with tempfile.TemporaryDirectory() as folder:
        planted(folder, "many.c", "int many(int a, int b, int c, int d, int e, int f, int g, int h)\n{\n    return a;\n}\n")
        planted(folder, "deep.c", "int deep(int a)\n{\n" + "    if (a)\n        a++;\n" * COMPLEXITY + "    return a;\n}\n")
        planted(folder, "good.c", "int good(int a, int b, int c, int d, int e, int f, int g)\n{\n    return a;\n}\n")
        found = large_functions(folder)
        assert sorted(re.search(r"(\w+) has ", line).group(1) for line in found) == ["deep", "many"], found


def a_planted_prefetch_is_found():
    with tempfile.TemporaryDirectory() as folder:
        planted(folder, "bare.c", "void bare(const void *at)\n{\n    __builtin_prefetch(at);\n}\n")
        assert bare_prefetches(folder) == ["bare.c"]


def planted_names_are_found():
    with tempfile.TemporaryDirectory() as folder:
        for one in ("a", "b"):
            os.mkdir(os.path.join(folder, one))
            planted(os.path.join(folder, one), "same.c", f"static int take_{one}(void)\n{{\n    return 1;\n}}\n")
        planted(folder, "a/all_internal.h", "static int take_in_a_header(void);\n")
        assert len(list(poor_names(folder))) == 2
        assert takers(folder) == [("same.c", "take_a"), ("same.c", "take_b")], takers(folder)


if __name__ == "__main__":
    run_all([no_circle_has_more_than_five_files, no_function_is_too_complex_or_has_too_many_parameters, lizard_is_the_one_that_is_pinned,
             files_have_names_of_their_own, few_functions_only_take, prefetches_are_those_that_the_compiler_keeps,
             a_planted_circle_is_found, planted_functions_are_found, a_planted_prefetch_is_found, planted_names_are_found])
