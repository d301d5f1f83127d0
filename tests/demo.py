# SPDX-License-Identifier: Apache-2.0
"""The main job as tools/demo runs it."""
import subprocess
import sys


def main():
    done = subprocess.run([sys.executable, "tools/demo.py", sys.argv[1], ""], capture_output=True, text=True, timeout=3000)
    good = done.returncode == 0 and "every sample delivered exactly once: yes" in done.stdout
    print("ok the_main_job_runs_under_mpirun" if good
          else f"FAIL the_main_job_runs_under_mpirun: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    shown = done.stdout.rstrip().splitlines()[-4:]
    print("ok it_ends_with_what_to_type_next" if shown[0] == "Next:" and all("rankstore" in line for line in shown[1:])
          else f"FAIL it_ends_with_what_to_type_next: {shown}")
    said = [line for line in done.stderr.splitlines() if line.startswith("... ")]
    print(f"{'ok' if len(said) == 4 else 'FAIL'} it_says_what_it_does: {len(said)} lines")


if __name__ == "__main__":
    main()
