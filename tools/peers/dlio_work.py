# SPDX-License-Identifier: Apache-2.0
"""DLIO's workloads: their data, made once by DLIO's own generator and built as a dataset, and runs of them in turns."""
from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from dlio_names import COLUMN, FOLDER
from dlio_source import Memory

HERE = Path(__file__).parent
LIMIT_S = 500  # of a run
# DLIO's settings for each loader; "nothing" reads nothing: what DLIO itself can reach here.
PLUG_IN = "++workload.reader.data_loader_classname=dlio_loader."
LOADERS = {"nothing": [PLUG_IN + "NothingLoader", "++workload.reader.data_loader_sampler=index"], "pytorch": [],
           "Rankstore": [PLUG_IN + "RankstoreLoader", "++workload.reader.data_loader_sampler=index"]}


@dataclass(frozen=True)
class Work:
    """`config` is DLIO's own file, whose record size, batch size, time of computation, workers and shuffling hold; `batch`, `record`
    (bytes), `sleep` (seconds) and `wanted` (percent) repeat it. `files` of `each` samples; `steps` at most, of each accelerator."""

    config: str
    format: str
    files: int
    each: int
    batch: int
    record: int
    sleep: float
    wanted: float
    steps: int
    accelerators: tuple[int, ...] = (1, 2, 4, 8, 16)
    epochs: int = 1  # of a run from memory
    small: bool = False  # records smaller than the workload's, all of one size


WORKLOADS = {"resnet50": Work("resnet50_h100", "hdf5", 32, 1251, 400, 114_660, 0.224, 90, 30),
             "cosmoflow": Work("cosmoflow_h100", "npz", 1024, 1, 1, 2_828_486, 0.0035, 70, 400),
             "unet3d": Work("unet3d_h100", "npz", 21, 1, 7, 146_600_628, 0.323, 90, 100, (1, 2), epochs=3),
             "bert": Work("bert_v100", "hdf5", 1, 313_532, 48, 2_500, 0.968, 90, 8, (1, 16))}


def quick(work: Work) -> Work:
    """Enough for some steps, of small records."""
    files, each = (1, 4 * work.batch) if work.each > 1 else (4 * work.batch, 1)
    return replace(work, files=files, each=each, steps=4, accelerators=(1,), epochs=1, record=min(work.record, 10_000), small=True)


class Race:
    """A workload and its data below `folder`; logs go to `out`."""

    def __init__(self, name: str, work: Work, folder: Path, out: Path) -> None:
        self.name, self.work, self.data, self.out = name, work, folder / name, out
        self.bytes = 0  # of all records

    def prepare(self) -> None:
        """Makes the files and the dataset, if they are not there."""
        import rankstore
        done = self.data / "done"
        if not done.exists():
            shutil.rmtree(self.data, ignore_errors=True)
            self.data.mkdir(parents=True)
            self._job("generate", 1, ["++workload.workflow.generate_data=True", "++workload.workflow.train=False",
                                       "++workload.train.total_training_steps=-1",
                                       f"++workload.dataset.generation_buffer_size={1 << 27}"])
            rankstore.build(self._columns(), self.data / FOLDER, schema={COLUMN: "uint8[*]"}, length=COLUMN, progress=False).close()
            os.sync()
            done.touch()
        with rankstore.open(self.data / FOLDER) as dataset:
            self.bytes = int(dataset.lengths.sum(dtype="uint64"))
            if len(dataset) != self.work.files * self.work.each:
                raise ValueError(f"{self.data}: the dataset has {len(dataset)} samples, DLIO's files {self.work.files * self.work.each}; "
                                 "remove the folder")

    def _columns(self) -> Iterator[Any]:
        """The records of DLIO's files, in their order."""
        import h5py
        import numpy

        import rankstore
        for path in sorted((self.data / "train").iterdir()):
            if self.work.format == "npz":
                with numpy.load(path) as file:
                    blocks = [numpy.moveaxis(file["x"], -1, 0)]
            else:
                with h5py.File(path) as opened:
                    blocks = [opened["records"][at:at + 4096] for at in range(0, self.work.each, 4096)]
            for block in blocks:
                size = block[0].size
                yield rankstore.Columns({COLUMN: (block.reshape(-1), numpy.arange(len(block) + 1) * size)})

    def _job(self, label: str, accelerators: int, settings: list[str], source: Memory | None = None) -> Path:
        """Runs DLIO; returns the folder of its figures. RuntimeError, with the end of its log, if it fails."""
        work, folder = self.work, self.out / "dlio-runs" / f"{self.name}-{label}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        command = ["mpirun", "-n", str(accelerators), "--bind-to", "none", "--oversubscribe", sys.executable, str(HERE / "dlio_job.py"),
                   str(folder), f"workload={work.config}", f"hydra.run.dir={folder}", "++workload.framework=pytorch",
                   f"++workload.dataset.format={work.format}", f"++workload.dataset.num_files_train={work.files}",
                   f"++workload.dataset.num_samples_per_file={work.each}", f"++workload.dataset.data_folder={self.data}",
                   "++workload.workflow.checkpoint=False", "++workload.checkpoint.model_size=1024",
                   "++workload.reader.data_loader=pytorch", *settings]
        if work.small:
            command += [f"++workload.dataset.record_length={work.record}", "++workload.dataset.record_length_stdev=0"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]), "OMP_NUM_THREADS": "1",
                       "PYTHONDONTWRITEBYTECODE": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                       **(source.environment() if source is not None else {})}
        with open(folder / "log.txt", "w", encoding="utf-8") as log:
            job = subprocess.Popen(command if source is None else source.wrap(command), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                   env=environment, start_new_session=True)
            try:
                code = job.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                code = -1
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(job.pid, signal.SIGKILL)
                job.wait()
        if code != 0:
            raise RuntimeError(f"DLIO took more than {LIMIT_S} s" if code == -1 else f"DLIO ended with {code}; see {folder}/log.txt")
        return folder

    def _one(self, loader: str, accelerators: int, source: Memory) -> dict[str, Any]:
        """The figures of a run."""
        work = self.work
        steps = work.files * work.each // work.batch // accelerators
        if not source.whole:
            steps = min(steps, work.steps)
        epochs = 1 if source.once else work.epochs
        settings = [f"++workload.train.epochs={epochs}", f"++workload.train.total_training_steps={steps}"]
        source.ready(loader)
        before = source.moved()
        found: dict[str, Any] = {"accelerators": accelerators, "loader": loader, "steps": steps * epochs, "error": None,
                                 "load": os.getloadavg()[0]}
        try:
            folder = self._job(loader, accelerators, [*settings, *LOADERS[loader]], source)
            metric = json.loads((folder / "summary.json").read_text())["metric"]
            costs = [json.loads((folder / f"cost-{rank}.json").read_text()) for rank in range(accelerators)]
        except (RuntimeError, OSError) as failed:
            return {**found, "error": str(failed)}
        utilisation = metric["train_au_mean_percentage"]  # without the first step of an epoch
        samples = accelerators * work.batch * utilisation / 100 / work.sleep
        return {**found, "utilisation": utilisation, "samples_s": samples, "bytes_s": samples * self.bytes / (work.files * work.each),
                "link_bytes_s": (source.moved() - before) / max(cost["wall_s"] for cost in costs),
                "processor_ms": 1000 * sum(cost["processor_s"] for cost in costs) / (steps * epochs * accelerators),
                "peak_rss_bytes": max(cost["peak_rss_bytes"] for cost in costs)}

    def run(self, rounds: int, source: Memory) -> dict[str, Any]:
        """The loaders in turns, with more accelerators as long as one keeps up: {"runs": [figures], "floor_bytes_s": [...], ...}."""
        runs: list[dict[str, Any]] = []
        floors: list[float] = []
        going = source.loaders
        for accelerators in self.work.accelerators:
            if self.work.files * self.work.each < 3 * self.work.batch * accelerators or set(going) <= {"nothing"}:
                break
            for _ in range(rounds):
                floor = source.floor()
                floors += [] if floor is None else [floor]
                runs += [self._one(loader, accelerators, source) for loader in going]
            going = tuple(loader for loader in going if self._keeps_up(runs, loader, accelerators))
        return {"work": asdict(self.work), "bytes": self.bytes, "runs": runs, "floor_bytes_s": floors, "floor": source.floor_told}

    def _keeps_up(self, runs: list[dict[str, Any]], loader: str, accelerators: int) -> bool:
        each = [run for run in runs if run["loader"] == loader and run["accelerators"] == accelerators]
        return all(run["error"] is None for run in each) and median(run["utilisation"] for run in each) >= self.work.wanted
