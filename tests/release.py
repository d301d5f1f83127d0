# SPDX-License-Identifier: Apache-2.0
"""tools/release in clones of this checkout: a good one, and each thing that may be wrong. Usage: tests/release.py BUILD"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

from support.report import Skip, run_all

BUILD = os.path.abspath(sys.argv[1])
NAMES = ["version", "changelog", "abi", "tree", "tag"]
# They may not be committed yet.
OURS = ["tools/release", "tests/abi.py", "tests/abi.json", "include", "meson.build", "python_bindings/meson.build"]


def git(clone, *arguments):
    return subprocess.run(["git", "-C", clone, "-c", "user.name=Tests", "-c", "user.email=tests@example", *arguments], check=True,
                          capture_output=True, text=True, timeout=600).stdout.strip()


def change(clone, path, old, new):
    with open(os.path.join(clone, path), encoding="utf-8") as file:
        text = file.read()
    assert len(re.findall(old, text)) >= 1, f"{path} has no {old!r}"
    with open(os.path.join(clone, path), "w", encoding="utf-8") as file:
        file.write(re.sub(old, lambda _: new, text, count=1))


def commit(clone):
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--allow-empty", "--message", "a state")


class Clone:
    """One that can be released: version 0.2.0, unless a newer one is in meson.build."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="rankstore-release-")
        top = os.path.join(self.folder.name, "clone")
        if subprocess.run(["git", "clone", "--quiet", ".", top], capture_output=True, timeout=600).returncode != 0:
            self.folder.cleanup()
            raise Skip("this is no clone of git")
        for path in OURS:
            if os.path.isdir(path):
                shutil.copytree(path, os.path.join(top, path), dirs_exist_ok=True)
            else:
                shutil.copy(path, os.path.join(top, path))
        for name in git(top, "tag").split():
            git(top, "tag", "--delete", name)
        with open("meson.build", encoding="utf-8") as file:
            version = re.search(r"version: '([\d.]+)'", file.read())[1]
        with open(os.path.join(top, "CHANGELOG.md"), "w", encoding="utf-8") as file:
            file.write(f"# Changelog\n\nVersions.\n\n## {version}, 2026-01-31\n\nWords.\n\n- **One.** New.\n\n"
                       "## 0.0.1, 2025-01-31\n\n- Old.\n")
        commit(top)
        self.top, self.version = top, version
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def run(self, *arguments):
        """Exit code, {check: its text}, the whole output."""
        done = subprocess.run([sys.executable, "tools/release", "--build", BUILD, *arguments], cwd=self.top, text=True,
                              stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=600,
                              env={**os.environ, "GIT_AUTHOR_NAME": "Tests", "GIT_AUTHOR_EMAIL": "tests@example",
                                   "GIT_COMMITTER_NAME": "Tests", "GIT_COMMITTER_EMAIL": "tests@example"})
        return done.returncode, dict(re.findall(r"^(?:ok|FAIL) (\w+):? ?(.*)$", done.stdout, re.M)), done.stdout

    def refuses(self, name, says):
        """This check alone fails, and no tag is made."""
        tags = git(self.top, "tag")
        for option in ("--check", "--tag"):
            code, found, text = self.run(option)
            assert code == 1 and [one for one in NAMES if found[one]] == [name], text
            assert re.search(says, found[name]), text
        assert git(self.top, "tag") == tags


def a_good_state_is_tagged_on_demand_alone():
    with Clone() as clone:
        code, found, text = clone.run("--check")
        assert code == 0 and found == dict.fromkeys(NAMES, "") and text.count("\n") == len(NAMES), text
        code, _, text = clone.run()
        assert code == 0 and f"v{clone.version} would tag" in text and git(clone.top, "tag") == "", text
        code, _, text = clone.run("--tag")
        assert code == 0 and f"git push origin v{clone.version}" in text, text
        assert git(clone.top, "cat-file", "-t", f"v{clone.version}") == "tag"
        assert "- **One.** New." in git(clone.top, "for-each-ref", "--format=%(contents)", f"refs/tags/v{clone.version}")
        clone.refuses("tag", "exists; raise the version")


def a_tree_with_changes_is_refused():
    with Clone() as clone:
        with open(os.path.join(clone.top, "left.txt"), "w", encoding="utf-8"):
            pass
        clone.refuses("tree", r"1 file differs from the commit \(left.txt\); commit or remove")
        change(clone.top, "README.md", "Rankstore", "Rankstores")
        clone.refuses("tree", r"2 files differ from the commit \(README.md, ...\); commit or remove")


def versions_that_differ_are_refused():
    with Clone() as clone:
        change(clone.top, "meson.build", "version: '[^']*'", "version: '9.8.7'")
        commit(clone.top)
        clone.refuses("version", f"top of CHANGELOG.md is '{clone.version}', meson.build has 9.8.7")
        change(clone.top, "CHANGELOG.md", f"## {clone.version}, 2026", "## 9.8.7, 2026")
        commit(clone.top)
        assert clone.run("--check")[0] == 0
        change(clone.top, "python_bindings/meson.build", r"version: run_command\('python3', '-c',",
               "version: run_command('python3', '-c', 'print(1)',")
        commit(clone.top)
        clone.refuses("version", "the Python package is '1'")


def an_entry_without_a_date_or_text_is_refused():
    with Clone() as clone:
        change(clone.top, "CHANGELOG.md", ", 2026-01-31", ", not released yet")
        commit(clone.top)
        clone.refuses("changelog", "says 'not released yet'; write its date")
        change(clone.top, "CHANGELOG.md", "not released yet\n\nWords.\n\n- ", "2026-01-31\n\nWords.\n\n")
        commit(clone.top)
        clone.refuses("changelog", f"lists nothing under {clone.version}")


def an_interface_that_differs_from_its_list_is_refused():
    with Clone() as clone:
        change(clone.top, "tests/abi.json", '"symbols": \\[', '"symbols": ["rks_gone", ')
        commit(clone.top)
        clone.refuses("abi", "rks_gone is gone")
        code, found, text = clone.run("--check", "--build", clone.top)
        assert code == 1 and "has no library; build it" in found["abi"], text


if __name__ == "__main__":
    run_all([a_good_state_is_tagged_on_demand_alone, a_tree_with_changes_is_refused, versions_that_differ_are_refused,
             an_entry_without_a_date_or_text_is_refused, an_interface_that_differs_from_its_list_is_refused])
