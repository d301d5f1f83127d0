# SPDX-License-Identifier: Apache-2.0
"""Runs the examples of README.md, docs/cli.md and docs/c.md: the commands in order, in one directory, with the output that the pages
show; then the C program there. Every command of `rankstore --help` occurs in them and succeeds."""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "cli"))
from run import fits  # noqa: E402


def blocks(page, language):
    with open(page, encoding="utf-8") as file:
        return re.findall(rf"^```{language}\n(.*?)^```", file.read(), re.M | re.S)


def run(name, command, work, environment):
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=3000)
    if done.returncode == 0:
        print(f"ok {name}")
    else:
        print(f"FAIL {name}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def commands(environment):
    """The commands that `rankstore --help` lists."""
    text = subprocess.run(["rankstore", "--help"], env=environment, capture_output=True, text=True, timeout=3000).stdout
    return re.findall(r"^  (\w+) ", text.partition("Commands:\n")[2].partition("\n\n")[0], re.M)


def steps(text):
    """`$ command` and the lines below it, which it prints: all of them, `...` standing for any text or lines."""
    for step in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, *printed = step.rstrip("\n").split("\n")
        yield command, printed or ["-"]


def problem_of(done, printed):
    """None where a command ended well and printed the lines; words to standard error come before or after its data."""
    if done.returncode != 0:
        return f"exit {done.returncode}"
    wrong = fits(printed, done.stderr + done.stdout)
    return None if fits(printed, done.stdout + done.stderr) is None or wrong is None else f"lacks: {wrong}"


def walk(text, work, environment):
    """Runs the steps with a `rankstore` in front that notes each command that ended well; returns those."""
    shim, log = os.path.join(work, ".shim"), os.path.join(work, ".commands")
    os.mkdir(shim)
    with open(os.path.join(shim, "rankstore"), "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nPATH="${{PATH#*:}}" rankstore "$@" && echo "$1" >> "{log}"\n')
    os.chmod(os.path.join(shim, "rankstore"), 0o755)
    environment = {**environment, "PATH": shim + ":" + environment["PATH"]}
    count = failed = 0
    for command, printed in steps(text):
        done = subprocess.run(["bash", "-uo", "pipefail", "-c", command], cwd=work, env=environment, capture_output=True,
                              text=True, timeout=3000)
        count += 1
        problem = problem_of(done, printed)
        if problem is not None:
            failed += 1
            print(f"FAIL the_walk_prints_what_the_pages_say: {problem}\n$ {command}\n{done.stdout}{done.stderr}")
    print(f"FAIL the_walk_is_short: {count} steps" if count < 30 else f"{'FAIL' if failed else 'ok'} "
          "the_walk_prints_what_the_pages_say")
    with open(log, encoding="utf-8") as file:
        return set(file.read().split())


def anchors(page):
    """Names of a page's headings, as GitHub makes them."""
    with open(page, encoding="utf-8") as file:
        text = re.sub(r"^```.*?^```", "", file.read(), flags=re.M | re.S)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", text, re.M)}


def links():
    """Links of the pages outside the Python package that lead nowhere."""
    for page in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "FORMAT.md", "tests/README.md", *sorted(glob.glob("docs/*.md"))):
        with open(page, encoding="utf-8") as file:
            targets = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", file.read())
        for path, anchor in targets:
            target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if not os.path.exists(target) or (anchor and anchor not in anchors(target)):
                yield f"{page}: {path}{'#' if anchor else ''}{anchor}"


def is_there(name):
    """Whether a test is there that a page names as `unit/fetch/test_x`, `test_x` (of the same folder), `cli/x.test`, `test_x.py` or by
    its folder."""
    if name.endswith(".py"):
        return os.path.exists(f"python_bindings/tests/{name}")
    if name.startswith("test_"):
        return bool(glob.glob(f"tests/unit/*/{name}.c"))
    return any(os.path.exists(f"tests/{name}{ending}") for ending in ("", ".c"))


def tests_named(page):
    """The tests that a page of promises names, each in backquotes."""
    with open(page, encoding="utf-8") as file:
        for name in re.findall(r"`((?:unit|cli|faults|fuzz|hosts|ranks|sim)(?:/[\w./]*)?|test_\w+(?:\.py)?)`", file.read()):
            yield name.rstrip("/")


def lost_tests():
    """Tests that pages name and that are not there."""
    for page in ("docs/security.md", "docs/promises.md"):
        found = list(tests_named(page))
        if not found:
            yield f"{page} names no test"
        for name in found:
            if not is_there(name):
                yield f"{page}: {name}"
    if is_there("unit/transport/test_no_such") or is_there("test_no_such") or is_there("test_no_such.py") or is_there("cli/no_such.test"):
        yield "a test that is not there is found"


def alone():
    """In a network of its own where the machine allows it: `rankstore top` of the pages lists every job of the user otherwise,
    those of tests that run beside this one too."""
    again = "--alone"
    enter = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    if again not in sys.argv and shutil.which(enter[0]) and subprocess.run([*enter, "true"], capture_output=True).returncode == 0:
        os.execvp(enter[0], [*enter, sys.executable, *sys.argv, again])


def main():
    alone()
    broken = list(links())
    print(f"FAIL the_links_lead_somewhere: {'; '.join(broken)}" if broken else "ok the_links_lead_somewhere")
    lost = list(lost_tests())
    print(f"FAIL the_tests_that_pages_name_are_there: {'; '.join(lost)}" if lost else "ok the_tests_that_pages_name_are_there")
    build, source = os.path.abspath(sys.argv[1]), os.getcwd()
    environment = {**os.environ, "PATH": os.path.join(build, "tools", "rankstore") + ":" + os.environ["PATH"],
                   "LD_LIBRARY_PATH": os.path.join(build, "src")}
    with tempfile.TemporaryDirectory(prefix="rankstore-readme-") as work:
        pages = "\n".join(blocks("README.md", "console") + blocks("docs/cli.md", "console"))
        ran, known = walk(pages, work, environment), commands(environment)
        missing = [name for name in known if name not in ran]
        print(f"FAIL the_walk_runs_every_command: not in it, or failed: {', '.join(missing)}" if missing or len(known) < 8
              else "ok the_walk_runs_every_command")
        with open(os.path.join(work, "example.c"), "w", encoding="utf-8") as file:
            file.write(blocks("docs/c.md", "c")[0])
        run("the_c_example_compiles_without_warnings",
            ["cc", "-Wall", "-Wextra", "-Werror", "example.c", "-o", "example", f"-I{source}/include", f"-L{build}/src",
             "-lrankstore"], work, environment)
        out = run("the_c_example_runs_as_printed", ["./example"], work, environment)
        ok = sum(int(n) for n in re.findall(r"^(\d+) samples", out, re.M)) == 2
        print(("ok" if ok else "FAIL") + " the_c_example_delivers_every_sample" + ("" if ok else f": {out!r}"))
        with open(os.path.join(work, "rows.c"), "w", encoding="utf-8") as file:
            file.write(blocks("docs/c.md", "c")[1])
        run("the_c_example_of_rows_compiles_without_warnings",
            ["cc", "-Wall", "-Wextra", "-Werror", "rows.c", "-o", "rows", f"-I{source}/include", f"-L{build}/src", "-lrankstore"],
            work, environment)
        out = run("the_c_example_of_rows_builds", ["./rows"], work, environment)
        out += run("and_its_dataset_is_whole", ["rankstore", "verify", "numbers", "--full"], work, environment)
        out += run("with_the_keys_that_the_page_names", ["rankstore", "cat", "numbers", "part 0:1"], work, environment)
        ok = out.startswith("8 samples in 4 units\n")
        print(("ok" if ok else "FAIL") + " the_c_example_of_rows_builds_every_row" + ("" if ok else f": {out!r}"))


if __name__ == "__main__":
    main()
