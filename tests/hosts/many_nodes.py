# SPDX-License-Identifier: Apache-2.0
"""The table of the page "Many nodes", on nodes of their own (support/nodes.py)."""
import json
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import nodes  # noqa: E402

CLI = os.path.join(os.path.abspath(sys.argv[1]), "tools", "rankstore", "rankstore")
ROWS = 4000
STORE = "/store"  # below the disk


class Nodes(nodes.Nodes):
    """Nodes that run the command line."""

    def rows(self, name, first=0, count=ROWS):
        path = f"{self.work}/{name}"
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"id": i, "text": "x" * (i % 61)}) + "\n" for i in range(first, first + count))
        return path

    def run(self, nodes, *arguments, code=0):
        return super().run(nodes, CLI, *arguments, code=code)

    def build(self, nodes, source, *options, code=0):
        return self.run(nodes, "build", source, "-o", self.disk + STORE, "--unit-size", "4k", *options, code=code)

    def opens(self, nodes, samples):
        out, _ = self.run(nodes, "stats", self.disk + STORE)
        assert f"length of {samples:,} samples" in out, out

    def dataset(self, node):
        with open(f"{self.work}/disk{node}{STORE}/dataset.json", encoding="utf-8") as file:
            return json.load(file)

    def wipe(self, node):
        shutil.rmtree(f"{self.work}/disk{node}{STORE}")


def other_nodes_open_the_dataset():
    with Nodes() as nodes:
        nodes.build([0, 1, 2], nodes.rows("rows.jsonl"))
        nodes.opens([2, 0, 1], ROWS)  # permuted
        nodes.opens([3, 0, 1, 2, 4], ROWS)  # more: two are empty
        os.rename(f"{nodes.work}/disk2{STORE}", f"{nodes.work}/disk4{STORE}")  # its disk is in another node now
        nodes.opens([0, 1, 4], ROWS)
        out, _ = nodes.build([3, 0, 1, 4], f"{nodes.work}/rows.jsonl", "--wait")
        assert "was there: the input and the options are the same" in out, out
        _, said = nodes.run([0, 1], "stats", nodes.disk + STORE, code=1)  # fewer
        assert "1 of 3 shards are on no rank's disk" in said and f":{nodes.disk}{STORE}" in said, said
        out, said = nodes.run([0, 1], "stats", nodes.disk + STORE, "--missing", "partial")
        assert "in missing shards" in out and "1 of 3 shards missing" in said, (out, said)


def a_lost_node_costs_its_units_and_may_come_back():
    with Nodes() as nodes:
        source = nodes.rows("rows.jsonl")
        nodes.build([0, 1, 2], source)
        before = nodes.dataset(0)
        os.rename(f"{nodes.work}/disk2", f"{nodes.work}/away")
        os.mkdir(f"{nodes.work}/disk2")  # a wiped disk
        out, said = nodes.build([0, 1, 2], source, "--wait")
        assert "repaired: 1 lost shard" in out and "1 of 3 shards are lost" in said, (out, said)
        assert nodes.dataset(2)["dataset"] == before["dataset"] and nodes.dataset(2)["revision"] == 1
        nodes.opens([1, 2, 0], ROWS)
        os.rename(f"{nodes.work}/disk2", f"{nodes.work}/rebuilt")
        os.rename(f"{nodes.work}/away", f"{nodes.work}/disk2")  # the old disk, in the place of the new one
        nodes.opens([0, 1, 2], ROWS)
        nodes.wipe(2)
        out, _ = nodes.run([0, 1], "repair", nodes.disk + STORE, source)  # a lost node: the others take its part
        assert "built again: 1 shard" in out, out
        nodes.opens([0, 1], ROWS)


def a_node_of_another_build_takes_the_place_of_a_lost_one():
    with Nodes() as nodes:
        source = nodes.rows("rows.jsonl")
        nodes.build([0, 1, 2], source)
        os.rename(f"{nodes.work}/disk2", f"{nodes.work}/away")
        os.mkdir(f"{nodes.work}/disk2")
        nodes.build([3, 4, 2], source)  # the same input once more
        assert nodes.dataset(2)["dataset"] == nodes.dataset(0)["dataset"]
        assert not {one["id"] for one in nodes.dataset(2)["shards"]} & {one["id"] for one in nodes.dataset(0)["shards"]}
        nodes.opens([0, 1, 2], ROWS)
        nodes.opens([3, 1, 2, 0, 4], ROWS)
        out, _ = nodes.build([2, 0, 1], source, "--wait")
        assert "was there: the input and the options are the same" in out, out


def a_dataset_grows_and_is_replaced_on_all_nodes():
    with Nodes() as nodes:
        nodes.build([0, 1], nodes.rows("rows.jsonl"))
        nodes.build([0, 1, 2], nodes.rows("more.jsonl", ROWS, 500), "--append")
        nodes.opens([2, 1, 0], ROWS + 500)
        out, _ = nodes.run([0, 1, 2], "stats", nodes.disk + STORE + "@1")
        assert f"length of {ROWS:,} samples" in out, out
        nodes.build([0, 1, 2], nodes.rows("other.jsonl", 9, 700), "--replace")
        nodes.opens([1, 0, 2], 700)
        _, said = nodes.build([0, 1, 2], f"{nodes.work}/rows.jsonl", "--wait", code=2)
        assert "already holds a finished dataset" in said, said


def a_disk_under_another_name_is_found():
    with Nodes() as nodes:
        source = nodes.rows("rows.jsonl")
        nodes.build([0, 1, 2], source)
        os.rename(f"{nodes.work}/disk2{STORE}", f"{nodes.work}/disk1/old-2")  # mounted in another node, elsewhere
        there = ("--shards", f"{nodes.disk}/old-*")
        out, _ = nodes.run([0, 1, 2], "stats", nodes.disk + STORE, *there)
        assert f"length of {ROWS:,} samples" in out, out
        out, _ = nodes.build([0, 1, 2], source, "--wait", *there)
        assert "was there: the input and the options are the same" in out, out
        out, _ = nodes.run([0, 1], "repair", nodes.disk + STORE, source, *there)
        assert "no shard is lost" in out, out
        _, said = nodes.run([0, 1, 2], "stats", nodes.disk + STORE, code=1)
        assert "1 of 3 shards are on no rank's disk" in said, said


def what_is_not_the_same_source_is_refused():
    with Nodes() as nodes:
        source = nodes.rows("rows.jsonl")
        nodes.build([0, 1, 2], source)
        before = nodes.dataset(0)
        _, said = nodes.build([0, 1, 2], source, "--wait", "--where", "id > 5", code=2)
        assert "already holds a finished dataset" in said, said
        nodes.wipe(2)
        with open(source, "r+", encoding="utf-8") as file:
            text = file.read().replace("xxx", "yyy")
            file.seek(0)
            file.write(text)
        _, said = nodes.build([0, 1, 2], source, "--wait", code=1)
        assert "has other samples now" in said and "nothing is changed" in said, said
        assert nodes.dataset(0) == before


def every_row_of_the_table_is_run():
    """What a running job does is a test of the Python package."""
    with open(os.path.join(TOP, "python_bindings", "docs", "nodes.md"), encoding="utf-8") as file:
        table = file.read().split("| situation |")[1].split("\n\n")[0].splitlines()[2:]
    situations = [row.split(" | ")[0].removeprefix("| ") for row in table]
    assert situations == list(ROWS_OF_TABLE), situations
    for tests in ROWS_OF_TABLE.values():
        for test in tests:
            if isinstance(test, str):
                name, function = test.split("::")
                with open(os.path.join(TOP, "python_bindings", "tests", name), encoding="utf-8") as file:
                    assert f"def {function}(" in file.read(), test
            else:
                assert test in TESTS, test


TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
ROWS_OF_TABLE = {
    "more nodes than built it": [other_nodes_open_the_dataset],
    "a node's directory is empty, and its shards lie on another node": [other_nodes_open_the_dataset],
    "disks are swapped, or mounted under other names": [
        a_disk_under_another_name_is_found, "test_search_path.py::test_the_variable_adds_folders",
        "test_search_path.py::test_a_star_is_one_dataset"],
    "a node with shards is lost, or a disk is wiped": [a_lost_node_costs_its_units_and_may_come_back],
    "the source holds other samples than when it was built": [what_is_not_the_same_source_is_refused],
    "the lost node comes back with its old shards": [a_lost_node_costs_its_units_and_may_come_back],
    "nodes have shards of two builds of the same input": [a_node_of_another_build_takes_the_place_of_a_lost_one,
                                                          "test_two_builds.py::test_shards_cut_in_another_way_are_refused"],
    "`open` without `build`, and shards are missing": [other_nodes_open_the_dataset],
    "another source or other options": [what_is_not_the_same_source_is_refused, a_dataset_grows_and_is_replaced_on_all_nodes],
    "the dataset grows, shrinks by `prune` or is replaced while you train": [
        "test_workers_generation.py::test_workers_read_what_their_parent_has", "test_refresh.py::test_on_ranks",
        "test_refresh.py::test_what_did_not_grow_out_of_it_is_refused"],
}
TESTS = [
    other_nodes_open_the_dataset,
    a_lost_node_costs_its_units_and_may_come_back,
    a_node_of_another_build_takes_the_place_of_a_lost_one,
    a_dataset_grows_and_is_replaced_on_all_nodes,
    a_disk_under_another_name_is_found,
    what_is_not_the_same_source_is_refused,
    every_row_of_the_table_is_run,
]
