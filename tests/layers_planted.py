# SPDX-License-Identifier: Apache-2.0
"""Breaches of the layers, planted one at a time in a copy of the tree: the check must find each."""
import os
import shutil
import tempfile

PYTHON = "python_bindings/rankstore/"

# rule -> [(file, lines that are added to it, what is found)]
BREACHES = {
    "each_folder_includes_only_from_the_layers_below": [
        ("src/plan/batch/cut.c", '#include "index/index.h"', "src/plan/batch/cut.c includes index/index.h"),
        ("src/export/lmdb_writer.c", '#include "ingest/row.h"', "src/export/lmdb_writer.c includes ingest/row.h"),
        ("src/ingest/row.h", '#include "export/export.h"', "src/ingest/row.h includes export/export.h"),
        ("src/nowhere/a.c", "", "src/nowhere/a.c: no layer is named nowhere"),
    ],
    "no_folders_include_each_other_in_a_circle": [
        ("src/shard/small_float.h", '#include "dataset/dataset.h"', "dataset -> shard -> dataset"),
    ],
    "each_folder_sees_only_its_public_headers": [
        ("src/base/error.h", '#include "rankstore/plan.h"', "src/base/error.h sees rankstore/plan.h"),
        ("src/ingest/options.h", '#include "rankstore/build.h"', "src/ingest/sample_selection.h sees rankstore/build.h"),
        ("include/rankstore/batch.h", '#include "rankstore/store.h"', "src/fetch/fetch.h sees rankstore/store.h"),
    ],
    "each_file_uses_the_public_headers_that_it_includes": [
        ("src/store/store_keys.c", '#include "rankstore/epoch.h"',
         "store/store_keys.c includes rankstore/epoch.h and uses nothing of it"),
        ("src/store/store_keys.c", '#include "rankstore/epoch.h"\n/* rks_epoch_open */',
         "store/store_keys.c includes rankstore/epoch.h and uses nothing of it"),
        ("src/store/store_keys.c", '#include "rankstore.h"', "store/store_keys.c includes rankstore.h"),
        ("include/rankstore/verify.h", '#include "rankstore/plan.h"',
         "rankstore/verify.h includes rankstore/plan.h and uses nothing of it"),
    ],
    "each_library_is_included_by_one_file": [
        ("src/dataset/excluded_samples.c", f"#include <{header}>", f"{header}: ")
        for header in ("lmdb.h", "mpi.h", "uv.h", "xxhash.h", "xxh_x86dispatch.h", "sodium.h", "archive.h",
                       "archive_entry.h", "zlib.h", "simdjson.h")
    ],
    "the_command_line_sees_only_the_public_header": [
        ("tools/rankstore/value.c", '#include "base/memory.h"', "tools/rankstore/value.c includes base/memory.h"),
        ("tools/rankstore/value.c", '#include "rankstore/store.h"', "tools/rankstore/value.c includes rankstore/store.h"),
    ],
    "the_map_says_who_sees_whom": [
        ("CONTRIBUTING.md", "| `plan/` | which samples form which batch | index, base | |", "CONTRIBUTING.md: plan/ sees base, index"),
    ],
    "each_python_package_imports_only_from_those_below": [
        (PYTHON + "_plan/mixture.py", "from .._gather import entries", "_plan.mixture imports _gather.entries"),
        (PYTHON + "_plan/mixture.py", "def f():\n    from .._gather.entries import Entry", "_plan.mixture imports _gather.entries"),
        (PYTHON + "_plan/mixture.py", "import rankstore._gather.entries", "_plan.mixture imports _gather.entries"),
        (PYTHON + "_plan/mixture.py", "importlib.import_module('rankstore._gather.entries')", "_plan.mixture imports _gather.entries"),
        (PYTHON + "_plan/mixture.py", "def f():\n    from rankstore import gather", "_plan.mixture imports rankstore"),
        (PYTHON + "errors.py", "from ._schema import types", "errors imports _schema.types"),
        (PYTHON + "_nowhere/a.py", "", "_nowhere.a: no package is named _nowhere"),
    ],
    "no_python_packages_import_each_other_in_a_circle": [
        (PYTHON + "_schema/sizes.py", "from .._plan import options", "_batching -> _schema -> _plan -> _batching"),
        (PYTHON + "_schema/sizes.py", "def f():\n    from .._batching.pack import Pack", "_batching -> _schema -> _batching"),
        (PYTHON + "_schema/sizes.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .._batching.pack import Pack",
         "_batching -> _schema -> _batching"),
        (PYTHON + "_schema/sizes.py", "def f():\n    from rankstore import plan", "rankstore -> _batching -> _schema -> rankstore"),
    ],
    "no_python_modules_import_each_other_in_a_circle": [
        (PYTHON + "_schema/types.py", "def f():\n    from . import decode", "_schema.types -> _schema.decode -> _schema.types"),
    ],
    "the_map_says_which_package_sees_which": [
        ("CONTRIBUTING.md", "| `_schema` | columns | `_plan` | |", "CONTRIBUTING.md: _schema sees _plan"),
    ],
}


def missed(check):
    """What the check does not say of a planted breach, and rules without one. `check(top)`: {rule: problems}."""
    wrong = []
    with tempfile.TemporaryDirectory() as top:
        for name in ("src", "include", "tools", "python_bindings/rankstore"):
            shutil.copytree(name, os.path.join(top, name))
        shutil.copy("CONTRIBUTING.md", top)
        wrong += [f"{rule}: nothing is planted" for rule in check(top) if rule not in BREACHES]
        for rule, planted in BREACHES.items():
            for path, text, found in planted:
                problems = check_with(check, os.path.join(top, path), text, top)[rule]
                if not any(problem.startswith(found) for problem in problems):
                    wrong.append(f"{rule}: {path}: {text}: {problems}")
    return wrong


def check_with(check, path, text, top):
    """What the check says with these lines at the end of a file, which is then as before."""
    before = None
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            before = file.read()
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write((before or "") + text + "\n")
    try:
        return check(top)
    finally:
        if before is None:
            shutil.rmtree(os.path.dirname(path))
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(before)
