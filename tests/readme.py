# SPDX-License-Identifier: Apache-2.0
"""Runs the README's examples as they are printed: the shell block, then the C program in the same directory."""
import os
import re
import subprocess
import sys
import tempfile


def blocks(language):
    with open("README.md", encoding="utf-8") as file:
        return re.findall(rf"^```{language}\n(.*?)^```", file.read(), re.M | re.S)


def run(name, command, work, environment):
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=120)
    if done.returncode == 0:
        print(f"ok {name}")
    else:
        print(f"FAIL {name}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def main():
    build, source = os.path.abspath(sys.argv[1]), os.getcwd()
    environment = {**os.environ, "PATH": os.path.join(build, "tools", "rankstore") + ":" + os.environ["PATH"],
                   "LD_LIBRARY_PATH": os.path.join(build, "src")}
    with tempfile.TemporaryDirectory(prefix="rankstore-readme-") as work:
        run("the_shell_example_works_as_printed", ["bash", "-euo", "pipefail", "-c", "\n".join(blocks("sh"))], work,
            environment)
        with open(os.path.join(work, "example.c"), "w", encoding="utf-8") as file:
            file.write(blocks("c")[0])
        run("the_c_example_compiles_without_warnings",
            ["cc", "-Wall", "-Wextra", "-Werror", "example.c", "-o", "example", f"-I{source}/include", f"-L{build}/src",
             "-lrankstore"], work, environment)
        out = run("the_c_example_runs_as_printed", ["./example"], work, environment)
        ok = sum(int(n) for n in re.findall(r"^(\d+) samples", out, re.M)) == 2
        print(("ok" if ok else "FAIL") + " the_c_example_delivers_every_sample" + ("" if ok else f": {out!r}"))


if __name__ == "__main__":
    main()
