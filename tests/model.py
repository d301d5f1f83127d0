# SPDX-License-Identifier: Apache-2.0
"""Models. Of the index exchange: docs/exchange.md shows what it prints, and its parts give what is known of them by other ways. Of the
handshake: spin looks through all that an intruder can do, and through proofs that lack a field, each of which it must find."""
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench"))
import exchange_model as model  # noqa: E402

HEADING = "## The index exchange: a model"


def report(name, problems):
    print(f"FAIL {name}: {'; '.join(problems)}" if problems else f"ok {name}")


def differences(pairs):
    """`pairs`: (what, found, wanted, part of it that may be off)."""
    return [f"{what} is {found}, not {wanted}" for what, found, wanted, off in pairs if abs(found - wanted) > off * wanted]


def rings():
    """Latencies by NCCL's constants, worked out by hand: hops within nodes and between them."""
    us = [("8 ranks on 1 node", model.ring(8, 8), 8.4 + 7 * 3.4), ("16 on 2", model.ring(16, 8), 8.4 + 14 * 3.4 + 14),
          ("256 on 32", model.ring(256, 8), 1204), ("1024 on 128", model.ring(1024, 8), 4833), ("32 on 32", model.ring(32), 442.4),
          ("128 on 128", model.ring(128), 1786.4)]
    return differences([(name, found * 1e6, wanted, 0.001) for name, found, wanted in us])


def rails():
    """Seconds of 8 rails at 45 GB/s by slot size, as 8 x ceil(part / slot) rings and the bytes of a part."""
    found = []
    for ranks, slot, seconds in ((256, 16, 0.078), (256, 64, 0.046), (256, 256, 0.038), (1024, 16, 0.83), (1024, 64, 0.32)):
        found.append((f"{ranks} ranks, {slot} MiB", model.slots_and_bytes(model.Job(ranks), slot * model.MIB, 45e9), seconds, 0.03))
    return differences(found)


def line():
    found = model.through([(10, 7.0), (20, 99.0), (30, 17.0)])
    return differences([("slope", found.slope, 0.5, 1e-9), ("fixed", found.fixed, 2.0, 1e-9), ("at 20", found.at(20), 12.0, 1e-9)])


def bounds(measured):
    """What docs/promises.md promises of memory, at the sizes of its table; more ranks never take less time."""
    problems = []
    for make, base in ((model.by_messages, "pull"), (model.by_messages, "mpi"), (model.by_nccl, "mpi")):
        before = 0.0
        for ranks in (16, 256, 1024, 4096):
            one = make(model.Job(ranks), 0.0, model.through(model.points_of(measured, base, "processor")).slope)
            if one.host + one.pinned > 64 * model.MIB or one.gpu > 128 * model.MIB:
                problems.append(f"{make.__name__} on {ranks}: {one}")
            if one.seconds <= before:
                problems.append(f"{make.__name__}: {ranks} ranks take {one.seconds} s")
            before = one.seconds
    return problems


def measurements(measured):
    """The committed run has what it is asked for, and its staging is what the model says of 4 ranks."""
    problems = []
    for samples, ways in measured["samples"].items():
        for way in ("mpi", "pull"):
            one, most = ways[way], int(samples)
            if one["staging"] > model.staging(3, 3):
                problems.append(f"{samples} {way}: staging of {one['staging']}")
            if one["beside_index"] > 64 * model.MIB:
                problems.append(f"{samples} {way}: {one['beside_index']} beside the index")
            if not 36 * most <= one["bytes"] <= 36 * most * 1.001 + 4096:
                problems.append(f"{samples} {way}: {one['bytes']} bytes")
    return problems


def page(measured):
    with open("docs/exchange.md", encoding="utf-8") as file:
        text = file.read()
    _, found, rest = text.partition(HEADING + "\n")
    section = rest.split("\n## ")[0]
    if not found:
        return [f"there is no section '{HEADING[3:]}'"]
    return [] if model.section(measured) in section + "\n" else ["print it again: tests/bench/exchange_model.py"]


# A field of the proof that is left out, by what breaks then.
FIELDS = ("NO_ROLE", "NO_NONCE_CONNECTED", "NO_NONCE_ACCEPTED", "NO_FEATURES", "NO_PLACES")
HANDSHAKE = os.path.abspath("tests/models/handshake.pml")
LIMIT_S = 300


def searched(*defines):
    """Errors that spin finds in the model with these definitions, and how many states it saw."""
    with tempfile.TemporaryDirectory(prefix="rankstore-model-") as folder:
        for command in (["spin", "-a", *(f"-D{one}" for one in defines), HANDSHAKE],
                        ["gcc", "-O2", "-w", "-DSAFETY", "-DMEMLIM=2048", "-o", "pan", "pan.c"]):
            subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=LIMIT_S)
        done = subprocess.run(["./pan", "-E", "-m100000"], cwd=folder, capture_output=True, text=True, timeout=LIMIT_S)
    errors, states = re.search(r"errors: (\d+)", done.stdout), re.search(r"(\d+) states, stored", done.stdout)
    if errors is None or states is None or "max search depth too small" in done.stdout or "out of memory" in done.stdout:
        raise RuntimeError(f"spin did not search all: {done.stdout[-500:]}{done.stderr[-500:]}")
    return int(errors[1]), int(states[1])


def handshake(*scenario):
    """No intruder breaks an invariant; A and B do meet; each field of the proof is needed."""
    problems = []
    errors, states = searched(*scenario)
    if errors != 0 or states < 100000:
        problems.append(f"{errors} errors in {states} states")
    if searched(*scenario, "REACH")[0] == 0:
        problems.append("no two sessions open")
    return problems + [f"{field} breaks nothing" for field in FIELDS if searched(*scenario, field)[0] == 0]


def main():
    with open("tests/bench/exchange_measured.json", encoding="utf-8") as file:
        measured = json.load(file)
    report("a_rings_latency_is_its_hops", rings())
    report("rails_take_their_rounds_and_their_bytes", rails())
    report("a_line_goes_through_its_ends", line())
    report("memory_stays_within_its_bound_and_time_grows_with_ranks", bounds(measured))
    report("the_measured_run_keeps_what_is_promised", measurements(measured))
    report("the_page_shows_what_the_model_prints", page(measured))
    report("an_intruder_opens_no_connection_of_two_ranks_that_both_accept_and_connect", handshake("CROSSING"))
    report("an_intruder_opens_no_connection_of_ranks_that_connect_twice", handshake())


if __name__ == "__main__":
    main()
