# SPDX-License-Identifier: Apache-2.0
"""What `meson install` leaves works by itself: the library through pkg-config, the command line, and the MPI module, with no
build tree beside them. Installs into a temporary prefix. And the Python package is made of what build/release has compiled.

Usage: tests/install.py [BUILD]      BUILD is not used: build/release is where the Python package looks
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from readme import blocks  # noqa: E402
from support.report import Skip, run_all  # noqa: E402

WORK = tempfile.mkdtemp(prefix="rankstore-install-")
PREFIX = os.path.join(WORK, "prefix")
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"]


def environment(**more):
    """The caller's, less whatever would lead to another copy."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RKS_") and name != "LD_LIBRARY_PATH"}
    return {**kept, **more}


def run(*command, env=None, cwd=WORK):
    done = subprocess.run(command, cwd=cwd, env=env or environment(), capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def installed(name):
    for folder, _, files in os.walk(PREFIX):
        if name in files:
            return os.path.join(folder, name)
    raise AssertionError(f"{name} is not installed")


def pkg_config(*options):
    folder = os.path.dirname(installed("rankstore.pc"))
    return run("pkg-config", *options, "rankstore", env=environment(PKG_CONFIG_PATH=folder)).split()


def it_installs_into_a_prefix():
    build = os.path.join(WORK, "build")
    run("meson", "setup", build, "--prefix", PREFIX, "-Doptimization=0", "-Dtests=false", cwd=os.getcwd())
    run("meson", "install", "-C", build)
    shutil.rmtree(build)  # from here on only what is installed is there


def the_command_line_finds_its_library():
    rankstore = installed("rankstore")
    with open(os.path.join(WORK, "questions.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(f'{{"id": "q{i}", "text": "{"word " * (i % 7 + 1)}"}}\n' for i in range(20))
    run(rankstore, "build", "questions.jsonl", "-o", "store", "--key", "id", "--length", "text")
    assert '"exactly_once": true' in run(rankstore, "bench", "store", "-j", "2", "--json")


def the_manual_page_and_the_completions_are_where_they_are_looked_for():
    for name, folder in (("rankstore.1", "man/man1"), ("rankstore.bash", "bash-completion/completions"),
                         ("_rankstore", "zsh/site-functions")):
        assert os.path.dirname(installed(name)).endswith(folder), name
        assert os.path.getsize(installed(name)) > 2000, name


def a_program_is_built_with_pkg_config_and_runs():
    with open(os.path.join(WORK, "example.c"), "w", encoding="utf-8") as file:
        file.write(blocks("docs/c.md", "c")[0])
    assert pkg_config("--modversion") == [run(installed("rankstore"), "--version").split()[-1]]
    run("cc", "-Wall", "-Wextra", "-Werror", "example.c", "-o", "example", *pkg_config("--cflags", "--libs"))
    assert samples_of(run("./example", env=library_path())) == 20


def the_source_package_of_python_holds_the_core():
    out = os.path.join(WORK, "sdist")
    os.makedirs(out)
    run(sys.executable, "-c", f"import mesonpy; mesonpy.build_sdist({out!r})", cwd=os.path.join(os.getcwd(), "python_bindings"))
    package, = os.listdir(out)
    shutil.unpack_archive(os.path.join(out, package), out)
    run("meson", "setup", os.path.join(out, "build"), package.removesuffix(".tar.gz"), cwd=out)  # looks at every source file


MINI = {"meson.build": "project('mini', 'c')\nsubdir('src')\n", "src/meson.build": "static_library('rankstore_core', 'one.c')\n",
        "src/one.c": "int before(void);\nint before(void)\n{\n    return 1;\n}\n", "include/one.h": ""}
BUILT_CORE = os.path.abspath("tools/built_core.py")


def mini(*options):
    """A project with a core of one file, configured in its build/release."""
    root = tempfile.mkdtemp(dir=WORK)
    for name, text in MINI.items():
        os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
        with open(os.path.join(root, name), "w", encoding="utf-8") as file:
            file.write(text)
    build = os.path.join(root, "build", "release")
    run("meson", "setup", build, *options, cwd=root)
    return root, build


def found_in(root):
    return run(sys.executable, BUILT_CORE, "find", root).strip()


def a_core_that_is_built_is_taken_and_stays_up_to_date():
    root, build = mini("--buildtype=release")
    assert found_in(root) == "", "nothing was built, so no ninja has a log there"
    run("ninja", "-C", build)
    assert found_in(root) == build
    archive, listed = os.path.join(root, "core.a"), os.path.join(root, "core.d")
    run(sys.executable, BUILT_CORE, "take", build, archive, listed)
    assert " T before" in run("nm", archive)
    with open(listed, encoding="utf-8") as file:
        made_of = [os.path.join(root, name) for name in ("include/one.h", "src/meson.build", "src/one.c")]
        assert file.read().split() == [archive + ":", *made_of]
    with open(os.path.join(root, "src/one.c"), "w", encoding="utf-8") as file:
        file.write(MINI["src/one.c"].replace("before", "afterwards"))
    run(sys.executable, BUILT_CORE, "take", build, archive, listed)
    symbols = run("nm", archive)
    assert " T afterwards" in symbols and "before" not in symbols, symbols


def a_core_of_other_options_or_another_ninja_is_not_taken():
    for options in (["--buildtype=debug"], ["--buildtype=release", "-Db_sanitize=address"]):
        root, build = mini(*options)
        run("ninja", "-C", build)
        assert found_in(root) == "", options
    root, build = mini("--buildtype=release")
    run("ninja", "-C", build)
    log = os.path.join(build, ".ninja_log")
    with open(log, "r+", encoding="utf-8") as file:
        text = "# ninja log v2\n" + file.read().partition("\n")[2]
        file.seek(0)
        file.write(text)
        file.truncate()
    assert found_in(root) == ""
    with open(log, encoding="utf-8") as file:
        assert file.read() == text, "the log was thrown away, so all would be compiled again"
    assert found_in(os.path.join(WORK, "nowhere")) == ""


def the_python_package_compiles_no_core_again():
    if found_in(os.getcwd()) == "":
        raise Skip("build/release has no core that this ninja built")
    build = os.path.join(WORK, "package")
    run("meson", "setup", build, "python_bindings", "--buildtype=release", cwd=os.getcwd())
    steps = run("ninja", "-C", build, "-n")
    again = re.findall(r"Compiling C\S* object \S*librankstore_core\S*", steps)
    assert not again and "_core.abi3.so" in steps and "rankstore_core with a custom command" in steps, again


def the_mpi_module_is_found_where_it_is_installed():
    if shutil.which("mpirun") is None:
        raise Skip("there is no mpirun")
    assert installed("librankstore_mpi.so")
    assert samples_of(run(*MPIRUN, "-x", "LD_LIBRARY_PATH", "./example", env=library_path())) == 20
    assert '"exactly_once": true' in run(*MPIRUN, installed("rankstore"), "bench", "store", "--json")


def library_path():
    return environment(LD_LIBRARY_PATH=os.path.dirname(installed("librankstore.so")))


def samples_of(printed):
    return sum(int(n) for n in re.findall(r"^(\d+) samples", printed, re.M))


if __name__ == "__main__":
    try:
        run_all([it_installs_into_a_prefix, the_command_line_finds_its_library,
                 the_manual_page_and_the_completions_are_where_they_are_looked_for, a_program_is_built_with_pkg_config_and_runs,
                 the_source_package_of_python_holds_the_core, a_core_that_is_built_is_taken_and_stays_up_to_date,
                 a_core_of_other_options_or_another_ninja_is_not_taken, the_python_package_compiles_no_core_again,
                 the_mpi_module_is_found_where_it_is_installed])
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
