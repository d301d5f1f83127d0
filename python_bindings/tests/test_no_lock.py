# SPDX-License-Identifier: Apache-2.0
"""Where the file system has no locks: flock fails with ENOLCK, as on Lustre without -o flock."""
from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from built import launched

SHIM = "#include <errno.h>\nint flock(int fd, int how);\nint flock(int fd, int how) { (void)fd; (void)how; errno = ENOLCK; return -1; }\n"

JOB = """
def main(group):
    rows = [{"id": i, "x": [i] * (i % 5)} for i in range(60)]
    out, options = sys.argv[1], {"no_lock": True} if len(sys.argv) > 2 else {}
    try:
        rankstore.build(rows[:40], out + "/a", key="id", **options).close()
        rankstore.build(rows[40:], out + "/b", key="id", **options).close()
        rankstore.merge([out + "/a", out + "/b"], out + "/both", **options)
        rankstore.prune(out + "/both", **options)
        with rankstore.open(out + "/both") as both:
            say(len(both))
    except rankstore.UnsupportedError as error:
        say(error)
"""


@pytest.fixture
def no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shim.c").write_text(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "shim.so", tmp_path / "shim.c"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(tmp_path / "shim.so"))


@pytest.mark.usefixtures("no_locks")
def test_several_ranks_need_the_option(tmp_path: Path) -> None:
    lines = launched(2, JOB, tmp_path)
    assert len(lines) == 2 and all("no locks" in line and "or set no_lock" in line for line in lines), "\n".join(lines)
    assert launched(2, JOB, tmp_path, "no_lock") == ["60", "60"]
