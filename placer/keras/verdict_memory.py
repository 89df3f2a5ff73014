"""Verdicts on the ways to run a step of a Keras model, remembered between the starts of a program."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

from placer.errors import PlacerError
from placer.keras.placed_step import PlacedStep
from placer.placed.memory import remember
from placer.plan.call_plan import CallPlan
from placer.plan.plan_store import MemoryKey, PlanStore, unpacked
from placer.plan.verdict import Verdict


def recall_verdict(step: PlacedStep, ways: Collection[str]) -> Verdict | None:
    """The remembered verdict on the ways to run a step, for batches of the same sizes; None if there is none.

    Args:
        step: the placed step. It has run a batch.
        ways: names of the ways.
    """
    key = _key(step, ways)
    entry = None if key is None else PlanStore().get(key.key)
    if entry is None:
        return None
    try:
        verdict = Verdict.from_json(unpacked(entry.call_plan)["verdict"])
    except (ValueError, TypeError, LookupError):
        return None
    return verdict if verdict.used in ways else None


def remember_verdict(step: PlacedStep, ways: Collection[str], verdict: Verdict) -> None:
    """Stores a verdict with the plan of the placed step, in an entry of its own beside the one of the plan."""
    key, plan = _key(step, ways), step.call_plan
    if key is None or plan is None:
        return
    with suppress(PlacerError):  # the whole plan may not be there, and training goes on without a memory
        remember(CallPlan.of(replace(plan.placement, verdict=verdict), plan.seen, key))


def _key(step: PlacedStep, ways: Collection[str]) -> MemoryKey | None:
    """Stands for the plan's own key, its devices, the sizes of the first batch, the batches of a call, and the ways."""
    plan = step.call_plan
    if plan is None or plan.memory_key is None:
        return None
    batches = (step.first_sizes, step.of_keras.steps_per_execution)
    parts = (plan.memory_key.key, sorted(plan.device_of.items()), batches, sorted(ways))
    return replace(plan.memory_key, key=hashlib.sha256(repr(parts).encode()).hexdigest())
