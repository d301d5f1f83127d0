# SPDX-License-Identifier: Apache-2.0
"""C files are as clang-format has them (.clang-format), and ruff finds nothing in Python files (ruff.toml)."""
import concurrent.futures
import os
import re
import shutil
import subprocess
import tempfile

from support.report import run_all

TOPS = ("src", "include", "tools", "tests", "python_bindings")
OTHERS = {"build", "dist", "subprojects", "__pycache__"}  # made, or the checkout once more
TOGETHER = 40
# What ruff must find: rule -> a file that breaks it alone.
BREACHES = {
    "E501": f"x = {'1' * 150}\n", "F401": "import os\n", "W291": "x = 1 \n", "I001": "import sys\nimport os\n\nprint(os, sys)\n",
    "UP006": "from typing import List\n\nx: List[int] = []\n", "B007": "for i in range(3):\n    print()\n",
}


def files(is_one):
    for top in TOPS:
        for folder, folders, names in os.walk(top):
            folders[:] = sorted(name for name in folders if name not in OTHERS)
            yield from (path for name in sorted(names) if is_one(path := os.path.join(folder, name)))


def is_c(path):
    return path.endswith((".c", ".h", ".cc"))


def is_python(path):
    if path.endswith((".py", ".pyi")):
        return True
    with open(path, "rb") as file:
        return "." not in os.path.basename(path) and re.match(rb"#!.*python", file.readline(200)) is not None


def run(*command, cwd="."):
    return subprocess.run(command, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)


def misformatted(paths, cwd="."):
    """What clang-format would change: "FILE:LINE", the first of each file."""
    parts = [paths[i:i + TOGETHER] for i in range(0, len(paths), TOGETHER)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        texts = list(pool.map(lambda part: run("clang-format", "--dry-run", "-Werror", "--ferror-limit=1", *part, cwd=cwd), parts))
    wrong = re.findall(r"^([^:\n]+:\d+):\d+: error:", "".join(one.stdout for one in texts), re.M)
    assert wrong or not any(one.returncode for one in texts), texts[0].stdout
    return wrong


def ruff(cwd="."):
    """What ruff finds: "FILE:LINE:COLUMN: RULE ...", a line each."""
    done = run("ruff", "check", "--no-cache", "--output-format", "concise", "--quiet", cwd=cwd)
    assert done.returncode in (0, 1), done.stdout
    return done.stdout.splitlines()


def the_tools_are_those_that_are_pinned():
    with open("tools/requirements-lint.txt", encoding="utf-8") as file:
        pinned = dict(re.findall(r"^([\w-]+)==(\S+)$", file.read(), re.M))
    pinned.pop("lizard")  # tests/structure.py
    for name, version in pinned.items():
        said = run(name, "--version").stdout if shutil.which(name) else "nothing"
        assert version in said.split(), f"{name} {version} is needed, not {said.strip()}: pip install -r tools/requirements-lint.txt"


def every_c_file_is_as_clang_format_has_it():
    paths = list(files(is_c))
    assert len(paths) > 500, len(paths)
    wrong = misformatted(paths)
    assert not wrong, f"clang-format -i {' '.join(one.partition(':')[0] for one in wrong)}"


def ruff_finds_nothing():
    wrong = ruff()
    assert not wrong, "\n".join(["ruff check --fix may mend some of", *wrong])


def ruff_reads_every_python_file():
    """A program without an ending is in ruff.toml."""
    listed = {os.path.relpath(path) for path in run("ruff", "check", "--show-files").stdout.splitlines()}
    left = [path for path in files(is_python) if path not in listed]
    assert not left, f"ruff.toml: extend-include lacks {left}"


def a_planted_breach_of_each_is_found():
    with tempfile.TemporaryDirectory() as folder:
        for name in (".clang-format", "ruff.toml"):
            shutil.copy(name, folder)
        for name, text in {"good.c": "int one(void)\n{\n    return 1;\n}\n", "bad.c": "int one(void) {\n  return 1; }\n",
                           "good.py": "x = 1\n", **{f"{rule}.py": text for rule, text in BREACHES.items()}}.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        assert [one.partition(":")[0] for one in misformatted(["good.c", "bad.c"], folder)] == ["bad.c"]
        found = {(line.partition(":")[0], line.split()[1]) for line in ruff(folder)}
        assert {(f"{rule}.py", rule) for rule in BREACHES} <= found and not any(name == "good.py" for name, _ in found), found


if __name__ == "__main__":
    run_all([the_tools_are_those_that_are_pinned, every_c_file_is_as_clang_format_has_it, ruff_finds_nothing, ruff_reads_every_python_file,
             a_planted_breach_of_each_is_found])
