# SPDX-License-Identifier: Apache-2.0
"""Rankstore as a data loader of DLIO (`workload.reader.data_loader_classname=dlio_loader.RankstoreLoader`).

The dataset is the folder `rankstore` in DLIO's data folder, or at the home that the environment names. It has the records of DLIO's
own files: a column, `x`. Each of DLIO's ranks, an emulated accelerator, is a rank here. Batches come in the order that the workload
asks for, records as they were stored.
"""
from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dlio_benchmark.common.enumerations import DataLoaderType, DatasetType, Shuffle
from dlio_benchmark.data_loader.base_data_loader import BaseDataLoader
from dlio_names import COLUMN, FOLDER, HOME, LOCAL


class RankstoreLoader(BaseDataLoader):  # type: ignore[misc]
    """`read` opens the dataset and makes the plan; each call of `next` gives an epoch."""

    def __init__(self, format_type: Any, dataset_type: DatasetType, epoch_number: int) -> None:
        super().__init__(format_type, dataset_type, epoch_number, DataLoaderType.PYTORCH)

    def read(self) -> None:
        import rankstore
        if self.dataset_type is not DatasetType.TRAIN:
            raise NotImplementedError("the dataset has DLIO's training files alone")
        home = os.environ.get(HOME)
        self.dataset = (rankstore.open(Path(self._args.data_folder) / FOLDER) if home is None else
                        rankstore.open(home, local=os.environ[LOCAL]))
        order = "sequential" if self._args.sample_shuffle == Shuffle.OFF else "random"
        plan = self.dataset.plan(order, batch_size=self.batch_size, tail="drop", seed=self._args.seed)
        self.loader = self.dataset.loader(plan)

    def next(self) -> Iterator[Any]:
        for batch in self.loader:
            yield batch[COLUMN]
        self.epoch_number += 1

    def finalize(self) -> None:
        """Called after each epoch: nothing ends yet."""


class NothingLoader(BaseDataLoader):  # type: ignore[misc]
    """Gives the picture that DLIO's readers hand over, and reads nothing: the most that DLIO itself can reach on a machine. (DLIO's
    synthetic loader does the same, but needs DALI.)"""

    def __init__(self, format_type: Any, dataset_type: DatasetType, epoch_number: int) -> None:
        super().__init__(format_type, dataset_type, epoch_number, DataLoaderType.PYTORCH)

    def read(self) -> None:
        """There is nothing to open."""

    def next(self) -> Iterator[Any]:
        for _ in range(self.num_samples // self.batch_size):
            yield [self._args.resized_image] * self.batch_size

    def finalize(self) -> None:
        """Called after each epoch."""
