# SPDX-License-Identifier: Apache-2.0
"""What tools/wheel must know is complete: a wheel takes minutes to build, so here its lists are compared with the build's."""
import importlib.machinery
import importlib.util
import inspect
import os
import re
import subprocess
import tempfile

from support.report import run_all

# What pkg-config calls a library whose Debian source has another name.
SOURCE_OF = {"libxxhash": "xxhash", "libuv": "libuv1"}
FROM_THE_SYSTEM = {"threads", "mpi"}  # glibc's; loaded when a program runs
INSIDE_LIBARCHIVE = {"bzip2", "xz-utils", "libzstd"}
CALLED = {"libuv1": "libuv", "xz-utils": "liblzma", "libzstd": "Zstandard"}
CODE = ("src", "include", "tools/rankstore", "python_bindings/src")


def tool():
    loader = importlib.machinery.SourceFileLoader("wheel_tool", "tools/wheel")
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("wheel_tool", loader))
    loader.exec_module(module)
    return module


def wanted(text):
    """Debian's sources of the libraries that the core's meson.build links."""
    found = set(re.findall(r"= dependency\('([\w-]+)'", text)) - FROM_THE_SYSTEM
    return {SOURCE_OF.get(name, name) for name in found}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def every_library_of_the_build_is_in_the_wheel():
    module, needed = tool(), wanted(read("meson.build"))
    assert len(needed) >= 8 and "libarchive" in needed, needed
    assert needed | INSIDE_LIBARCHIVE == set(module.SOURCES), needed ^ set(module.SOURCES)
    assert "lz4" in wanted(read("meson.build") + "\nlz4 = dependency('lz4')"), "a planted library is not found"


def every_source_is_built():
    module = tool()
    text = inspect.getsource(module.Target.libraries)
    built = set(re.findall(r'self\.(?:cmake|objects)\("([\w-]+)"', text)) | ({"libsodium"} if "self.sodium()" in text else set())
    assert built == set(module.SOURCES), built ^ set(module.SOURCES)


def every_source_has_its_licence():
    module, text = tool(), read("THIRD_PARTY").lower()
    missing = [name for name in module.SOURCES if CALLED.get(name, name).lower() not in text]
    assert not missing, f"THIRD_PARTY does not name {missing}"
    assert 'for name in SOURCES' in inspect.getsource(module.Target.finish), "the wheel lacks licences"


def built_in_questions(text):
    """zig links no library that answers them: ask base/cpu_features.h."""
    return re.findall(r"__builtin_cpu_\w+|\bifunc\b|target_clones", re.sub(r"/\*.*?\*/", "", text, flags=re.S))


def no_code_asks_the_compiler_for_the_processor():
    wrong = [f"{os.path.join(folder, name)}: {one}" for top in CODE for folder, _, names in os.walk(top) for name in names
             if name.endswith((".c", ".cc", ".h")) for one in built_in_questions(read(os.path.join(folder, name)))]
    assert not wrong, wrong
    assert built_in_questions("if (__builtin_cpu_supports(\"avx\"))"), "a planted question is not found"


# Calls that newer processors' Linux lacks: there the one that takes a directory, or flags, is the only one.
OLD_CALLS = re.compile(r"\bSYS_(?:access|chmod|creat|dup2|epoll_create|epoll_wait|eventfd|fork|getdents|inotify_init|link|lstat|mkdir|mknod"
                       r"|open|pipe|poll|readlink|rename|rmdir|select|signalfd|stat|symlink|unlink|utimes?|vfork)\b")


def no_code_makes_calls_that_only_older_processors_have():
    wrong = [f"{os.path.join(folder, name)}: {call}" for top in (*CODE, "tests") for folder, _, names in os.walk(top) for name in names
             if name.endswith((".c", ".cc", ".h")) for call in OLD_CALLS.findall(read(os.path.join(folder, name)))]
    assert not wrong, wrong
    assert OLD_CALLS.findall("syscall(SYS_unlink, path)"), "a planted call is not found"
    assert not OLD_CALLS.findall("SYS_unlinkat, SYS_openat")


# The compiler's own headers ask for the processor too, so they come before it is hidden.
HIDDEN = """#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <inttypes.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>
#undef __x86_64__
#undef RKS_XXH_DISPATCH
"""


def compiles(folder, path):
    """Whether a file compiles for another processor; what the compiler says."""
    done = subprocess.run(["cc", "-fsyntax-only", "-x", "c", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-Isrc",
                           "-Iinclude", "-include", os.path.join(folder, "hidden.h"), path], text=True, capture_output=True, timeout=600)
    return done.returncode == 0, done.stderr[-2000:]


def what_names_a_processor_compiles_for_another():
    named = [os.path.join(folder, name) for folder, _, names in os.walk("src") for name in names
             if name.endswith((".c", ".h")) and re.search("__x86_64__|RKS_XXH_DISPATCH", read(os.path.join(folder, name)))]
    assert len(named) >= 3, named
    with tempfile.TemporaryDirectory(prefix="rankstore-wheel-") as folder:
        with open(os.path.join(folder, "hidden.h"), "w", encoding="utf-8") as file:
            file.write(HIDDEN)
        for path in named:
            good, said = compiles(folder, path)
            assert good, f"{path}: {said}"
        planted = os.path.join(folder, "planted.c")
        with open(planted, "w", encoding="utf-8") as file:
            file.write("#ifdef __x86_64__\nenum { FROM = 1 };\n#endif\nint from(void);\nint from(void)\n{\n    return FROM;\n}\n")
        good, said = compiles(folder, planted)
        assert not good and "FROM" in said, "a planted name that only one processor has is not found"


def left_out(text):
    """Packages in which what Python compiled is not installed, by the text of the package's meson.build."""
    return set(re.findall(r"'(_\w+)'", text.partition("foreach package : [")[2].partition("]")[0]))


def nothing_that_python_compiled_is_in_the_wheel():
    there = {name for name in os.listdir("python_bindings/rankstore") if os.path.isfile(f"python_bindings/rankstore/{name}/__init__.py")}
    named = left_out(read("python_bindings/meson.build"))
    assert len(there) > 8 and named == there, f"python_bindings/meson.build names {named ^ there}, or lacks it"
    assert left_out("foreach package : ['_a',\n '_b']\n  caches += '_c'\n") == {"_a", "_b"}


if __name__ == "__main__":
    run_all([
        every_library_of_the_build_is_in_the_wheel,
        every_source_is_built,
        every_source_has_its_licence,
        no_code_asks_the_compiler_for_the_processor,
        no_code_makes_calls_that_only_older_processors_have,
        what_names_a_processor_compiles_for_another,
        nothing_that_python_compiled_is_in_the_wheel,
    ])
