# SPDX-License-Identifier: Apache-2.0
"""What .github/ names is there: each step of `tools/test`, each tool. The workflows run on the forge alone, so this reads them."""
import glob
import os
import re
import shlex
import subprocess
import sys

import yaml
from support.report import run_all

WORKFLOWS = ".github/workflows/*.yml"
ADDRESS = re.compile(r"https?:|\b[\w-]+\.(?:com|dev|io|net|org)\b")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def steps_of_tests():
    return subprocess.run([sys.executable, "tests/run.py", "--list"], check=True, capture_output=True, text=True,
                          timeout=600).stdout.splitlines()


def values(job):
    """{name: its texts} of the job's matrix."""
    matrix = (job.get("strategy") or {}).get("matrix") or {}
    found = {name: list(map(str, those)) for name, those in matrix.items() if name != "include"}
    for row in matrix.get("include", []):
        for name, text in row.items():
            found.setdefault(name, []).append(str(text))
    return found


def commands(workflow):
    """Words of each command that a workflow runs, with each value of the matrix in turn."""
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            for line in step.get("run", "").splitlines():
                used = re.search(r"\$\{\{ *matrix\.(\w+) *\}\}", line)
                for text in values(job)[used[1]] if used else [""]:
                    yield shlex.split(line.replace(used[0], text) if used else line)


def wrong_commands(workflow, known):
    """What a workflow calls that is not there."""
    for words in commands(workflow):
        if words and words[0].startswith("tools/") and not os.access(words[0], os.X_OK):
            yield f"there is no {words[0]}"
        elif words and words[0] == "tools/test":
            yield from (f"there is no step {word!r}" for word in words[1:] if word not in known)


def workflows():
    found = {path: yaml.safe_load(read(path)) for path in sorted(glob.glob(WORKFLOWS))}
    assert {"site.yml", "test.yml", "wheels.yml"} <= {os.path.basename(path) for path in found}, found
    return found


def what_workflows_call_is_there():
    known = steps_of_tests()
    wrong = [f"{path}: {problem}" for path, workflow in workflows().items() for problem in wrong_commands(workflow, known)]
    assert not wrong, wrong


def workflows_run_every_step_and_the_tools_that_publish():
    words = [one for workflow in workflows().values() for one in commands(workflow) if one]
    missing = set(steps_of_tests()) - {word for one in words if one[0] == "tools/test" for word in one[1:]}
    assert not missing, f".github/workflows/test.yml runs no {sorted(missing)}"
    assert {"tools/wheel", "tools/site"} <= {one[0] for one in words}


def actions_are_the_forge_s_own_and_have_versions():
    for path, workflow in workflows().items():
        for job in workflow["jobs"].values():
            assert "runs-on" in job, path
            for step in job["steps"]:
                assert ("uses" in step) != ("run" in step), f"{path}: {step}"
                assert re.fullmatch(r"actions/[\w-]+@v\d+", step.get("uses", "actions/x@v1")), f"{path}: {step}"


def no_address_is_in_them():
    for path in glob.glob(".github/**/*.*", recursive=True):
        found = ADDRESS.search(read(path))
        assert not found, f"{path}: {found[0]}"


def templates_have_a_name_and_what_they_are_about():
    paths = sorted(glob.glob(".github/ISSUE_TEMPLATE/*.md"))
    assert len(paths) == 2, paths
    for path in paths:
        head = yaml.safe_load(read(path).split("---\n")[1])
        assert head["name"] and head["about"], path
    assert os.path.getsize(".github/PULL_REQUEST_TEMPLATE.md") > 100


def a_planted_breach_is_found():
    planted = yaml.safe_load("""
        jobs:
          one:
            strategy: {matrix: {steps: ['unit "no such step"', 'layers'], arch: [x86_64]}}
            steps:
              - run: |
                  tools/test ${{ matrix.steps }}
                  tools/nothing --arch ${{ matrix.arch }}
              - run: tools/test --quick gone
        """)
    assert list(wrong_commands(planted, {"unit", "layers", "--quick"})) == [
        "there is no step 'no such step'", "there is no tools/nothing", "there is no step 'gone'"]
    assert ADDRESS.search("pip install -i https://a") and ADDRESS.search("image: a.org/debian")
    assert not ADDRESS.search("image: debian:12")


if __name__ == "__main__":
    run_all([what_workflows_call_is_there, workflows_run_every_step_and_the_tools_that_publish,
             actions_are_the_forge_s_own_and_have_versions,
             no_address_is_in_them, templates_have_a_name_and_what_they_are_about, a_planted_breach_is_found])
