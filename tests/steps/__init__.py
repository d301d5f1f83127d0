# SPDX-License-Identifier: Apache-2.0
"""What tests/run.py runs: table.py lists the steps, builds.py makes the builds they need, suites.py and scripts.py turn a step into
jobs and read what a job printed, job.py says what a job is, pool.py runs jobs side by side, by what load.py measures, costs.py says
what they cost, progress.py shows how far they are."""
