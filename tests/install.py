# SPDX-License-Identifier: Apache-2.0
"""What `meson install` leaves works by itself: the library through pkg-config, the command line, and the MPI module, with no
build tree beside them. Installs into a temporary prefix; takes no build directory."""
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
                 the_source_package_of_python_holds_the_core, the_mpi_module_is_found_where_it_is_installed])
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
