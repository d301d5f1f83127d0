# SPDX-License-Identifier: Apache-2.0
"""mypy and pyright accept the examples and what python_bindings/tests/typed_uses.py says of types, and find planted errors. Prints a line
"ok NAME", "FAIL NAME" or "skip NAME: REASON" for each.

The package itself passes mypy's strict mode (python_bindings/tests/test_core_types.py)."""
import importlib.util
import os
import subprocess
import sys

TOP = os.path.abspath("python_bindings")
USES = "tests/typed_uses.py"
PLANTED = os.path.join("examples", "planted_errors.py")
ERRORS = {  # by line of the planted file, after its first three
    4: "ds.loader(ds.plan(), thread=2)",
    5: 'ds.loader(ds.plan(), threads="2")',
    6: "ds.loader(ds.plan(), collate=4)",
    7: 'ds[0].loader',
    8: "rankstore.gather([1])",
    9: "ds.plan(max_tokens=1.5)",
}


def run(*command):
    done = subprocess.run(command, cwd=TOP, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1500,
                          env={**os.environ, "MYPYPATH": ".", "PYTHONPATH": TOP})
    return done.returncode, done.stdout


def mypy(*files):
    """mypy as users run it, without a configuration; it reports nothing of the package, and keeps what it found of torch."""
    return run(sys.executable, "-m", "mypy", "--config-file", os.devnull, "--follow-imports", "silent", "--disable-error-code",
               "import-untyped", "--disable-error-code", "import-not-found", "--no-error-summary", "--python-version", "3.11",
               "--cache-dir", os.path.join(os.path.dirname(TOP), "build", "python", "mypy_uses"), *files)


def pyright(*files):
    """pyright with [tool.pyright] of pyproject.toml, and all its own files from its package: it fetches nothing."""
    return run(sys.executable, "-m", "pyright", "--pythonpath", sys.executable, *files)


def main():
    examples = sorted(os.path.join("examples", name) for name in os.listdir(os.path.join(TOP, "examples")) if name.endswith(".py"))
    for name, check in (("mypy", mypy), ("pyright", pyright)):
        if importlib.util.find_spec(name) is None:
            print(f"skip {name}: it is not installed (tools/requirements-types.txt)")
            continue
        code, said = check(*examples, USES)
        print(f"ok {name}_accepts_the_examples_and_uses" if code == 0 else f"FAIL {name}_accepts_the_examples_and_uses\n{said[-6000:]}")
        with open(os.path.join(TOP, PLANTED), "w", encoding="utf-8") as file:
            file.write("import rankstore\n\nds = rankstore.open('store')\n" + "\n".join(ERRORS.values()) + "\n")
        try:
            code, said = check(PLANTED)
        finally:
            os.unlink(os.path.join(TOP, PLANTED))
        missed = [text for line, text in ERRORS.items() if f"{PLANTED}:{line}:" not in said]
        print(f"FAIL {name}_finds_planted_errors: {'; '.join(missed)}\n{said[-3000:]}" if missed else f"ok {name}_finds_planted_errors")


if __name__ == "__main__":
    main()
