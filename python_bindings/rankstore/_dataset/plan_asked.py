# SPDX-License-Identifier: Apache-2.0
"""What `Dataset.plan` was asked for, to make the same plan of a later generation."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import _core
from .._batching.limits import rule_of
from .._distributed.collectives import on_all
from .._plan.cost import costs_of, digest_of
from .._plan.mixture import shown_options
from .._plan.options import core_options, plan_options
from .indexing import agree_on

Drawn = tuple[Any, ...] | None


@dataclass(frozen=True)
class PlanAsked:
    """The arguments of a call of `Dataset.plan`: options of the core, which samples are drawn how often, what is balanced."""

    given: dict[str, Any]
    drawing: dict[str, Any]
    balance: Any
    changes: bool  # there is a curriculum

    def core(self, dataset: Any, *, shared: bool) -> tuple[_core.Plan, dict[str, Any], Drawn]:
        """Return the core of the plan, its options, and its mix. shared: all ranks make it together (collective)."""

        def asked() -> tuple[dict[str, Any], Drawn, Any]:
            options = plan_options(**self.given)
            drawn = dataset.mix_option(**self.drawing, changes=self.changes)
            return options, drawn, costs_of(self.balance, dataset, rule_of(options))

        options, drawn, costs = on_all(dataset.group, "plan", asked) if shared else asked()
        whole = shared and not dataset.is_selection
        core = _core.Plan(dataset.store, mix=drawn, balance=costs, **options) if whole else None
        options.update(shown_options(*self.drawing.values()))
        if core is None:
            lengths, name = dataset.planned_lengths()
            if shared:
                agree_on(dataset.group, name, len(dataset),
                         {**options, "balance": digest_of(costs), "curriculum": self.changes})
            core = _core.Plan(lengths, dataset=name, mix=drawn, balance=costs, **core_options(options))
            if not dataset.is_selection:
                core.know_earlier(dataset.store.earlier())
        return core, options, drawn
