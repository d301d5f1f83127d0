# SPDX-License-Identifier: Apache-2.0
"""One job appends every second for two minutes, another trains on the dataset and refreshes: python_bindings/tests/test_growth.py, longer
than beside the other tests. Prints a line "ok NAME" or "FAIL NAME" for each."""
import os
import subprocess
import sys

SECONDS = 120


def main():
    done = subprocess.run([sys.executable, "tests/python.py", "", "python_bindings/tests/test_growth.py"],
                          env={**os.environ, "RKS_GROWTH_SECONDS": str(SECONDS)}, text=True, capture_output=True,
                          timeout=10 * SECONDS + 900)
    print(done.stdout[-6000:], done.stderr[-2000:])
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
