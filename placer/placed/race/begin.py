"""Which functions race, and what their calls run when the race is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from placer.placed.race.calls import Race, Runner, Watch
from placer.placed.race.candidates import Candidate, candidates
from placer.placed.race.compiled_calls import CompiledCalls
from placer.placed.signature import Prepared
from placer.plan.verdict import DEFAULT, PLAN, Verdict

if TYPE_CHECKING:
    from placer.placed.signatures import Signatures
    from placer.tf.trace.tracing import Trace


def begin(signatures: Signatures, prepared: Prepared) -> Prepared:
    """Lets the calls of a function race, where that is possible and a candidate is predicted to be faster than the default.

    Args:
        signatures: of the placed function.
        prepared: a call that is planned and rewritten.
    """
    planned, placement, trace = prepared.planned, prepared.plan, prepared.trace
    assert trace is not None
    prepared = replace(prepared, planned=None)
    if placement.verdict is not None:
        if device := placement.verdict.compiled_for:
            prepared = replace(prepared, compiled=CompiledCalls(trace, device, prepared.run))
        return watched(signatures, prepared, placement.verdict)
    options = signatures.options
    chosen_by_user = options.solver != "auto" or options.objective != "step_time"
    if planned is None or options.race == "off" or (options.race == "auto" and chosen_by_user):
        return prepared
    entrants = candidates(planned)
    default_ns = next((each.predicted_ns for each in entrants if each.name == DEFAULT), None)
    if len(entrants) > 1 and options.race == "auto" and min(each.predicted_ns for each in entrants) == default_ns:
        return prepared
    if reason := _reason_against(signatures, trace, entrants):
        note = f"The calls do not race, so the plan is only predicted: {reason}."
        return replace(prepared, placement=replace(placement, notes=(*placement.notes, note)))
    return replace(prepared, timing=_race(signatures, prepared, trace, entrants)) if len(entrants) > 1 else prepared


def _reason_against(signatures: Signatures, trace: Trace, entrants: Sequence[Candidate]) -> str:
    """Why calls may not be given to different placements in turn; "" if they may."""
    from placer.tf.run.calling import is_deterministic
    from placer.tf.run.learning import starts_anew

    if not entrants:
        return "TensorFlow's default does not fit the memory"
    if signatures.moves_variables:
        return 'variables="move" moves variables before the first call'
    if starts_anew(trace):
        return "each copy of the function would begin anew with its own state, such as the position of a random seed"
    if is_deterministic() and signatures.options.race == "auto":
        return "TensorFlow is set to be deterministic, and results can differ between devices in their last bits"
    return ""


def _race(signatures: Signatures, prepared: Prepared, trace: Trace, entrants: Sequence[Candidate]) -> Race:
    from placer.tf.run.exhausted import changes_nothing

    def runner(candidate: Candidate) -> Runner:
        if candidate.name == PLAN:
            return prepared.run  # type: ignore[no-any-return]
        if candidate.name == DEFAULT and not signatures.options.pins:
            return prepared.concrete  # type: ignore[no-any-return]
        return signatures.rewritten(prepared, trace, candidate.placement)

    def settle(verdict: Verdict, winner: Candidate, run: Runner) -> None:
        settled = replace(prepared, placement=replace(winner.placement, verdict=verdict), run=run)
        if prepared.signature.current is not None and prepared.signature.current.timing is race:
            signatures.settle(watched(signatures, settled, verdict))

    race = Race(entrants, prepared.run, runner, changes_nothing(prepared.plan.graph), settle)
    return race


def watched(signatures: Signatures, prepared: Prepared, verdict: Verdict) -> Prepared:
    """The call with a `Watch`, if the candidate that it runs was timed."""
    used = verdict.of(verdict.used)
    if used is None or not used.median_ns or signatures.options.race == "off":
        return prepared
    return replace(prepared, timing=Watch(prepared.call, used.median_ns, lambda: signatures.forget(prepared.signature)))
