# SPDX-License-Identifier: Apache-2.0
"""What `Dataset.plan` was asked for, to make the same plan of a later generation."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import _core
from .._batching.limits import rule_of
from .._distributed.collectives import on_all
from .._plan.cost import costs_of, digest_of, shown
from .._plan.mixture import shown_options
from .._plan.options import core_options, plan_options
from ..errors import ArgumentError
from .indexing import agree_on

Drawn = tuple[Any, ...] | None


@dataclass(frozen=True)
class PlanAsked:
    """The arguments of a call of `Dataset.plan`: options of the core, which samples are drawn how often, what is balanced."""

    given: dict[str, Any]
    drawing: dict[str, Any]
    balance: Any
    changes: bool  # there is a curriculum
    made_for: int = 0  # samples, once the plan is made

    def core(self, dataset: Any, *, shared: bool) -> tuple[_core.Plan, dict[str, Any], Drawn]:
        """Return the core of the plan, its options, and its mix. shared: all ranks make it together (collective)."""

        def asked() -> tuple[dict[str, Any], Drawn, Any, dict[str, Any]]:
            options = plan_options(**self.given)
            drawing = {**self.drawing, "weights": self._numbers("weights", self.drawing["weights"], dataset)}
            balance = self._numbers("balance", self.balance, dataset)
            drawn = dataset.mix_option(**drawing, changes=self.changes)
            return options, drawn, costs_of(balance, dataset, rule_of(options)), {**shown_options(**drawing), **shown(balance)}

        options, drawn, costs, words = on_all(dataset.group, "plan", asked) if shared else asked()
        whole = shared and not dataset.is_selection
        core = _core.Plan(dataset.store, mix=drawn, balance=costs, **options) if whole else None
        if core is None:
            lengths, name = dataset.planned_lengths()
            if shared:
                agree_on(dataset.group, name, len(dataset),
                         {**options, **words, "balance": digest_of(costs), "curriculum": self.changes})
            core = _core.Plan(lengths, dataset=name, mix=drawn, balance=costs, **core_options(options))
            if not dataset.is_selection:
                core.know_earlier(dataset.store.earlier())
        return core, {**options, **words}, drawn

    def _numbers(self, option: str, numbers: Any, dataset: Any) -> Any:
        """Return the numbers of a dataset's samples that an option gives, itself or by a function."""
        if callable(numbers):
            return numbers(dataset)
        if numbers is not None and not isinstance(numbers, (Mapping, tuple)) and self.made_for not in (0, len(dataset)):
            raise ArgumentError(f"{option}: {self.made_for} numbers, and the dataset has {len(dataset)} samples now; give {option}= as a "
                                "function of the dataset, which a refresh calls again, or make a new plan after closing this one's loaders")
        return numbers
