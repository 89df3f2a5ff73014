"""Which functions race, and what their calls run when the race is over."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from placer.common.units import three_digits
from placer.graph.requested_devices import has_requested_devices
from placer.placed.memory import remember
from placer.placed.race.calls import AroundBackward, Dispatch, PairRace, Race, Runner, Watch
from placer.placed.race.candidates import Candidate, beyond_doubt, candidates
from placer.placed.race.compiled_calls import CompiledCalls
from placer.placed.race.move_trial import MoveChoice, MoveTrial, TrialOwner
from placer.placed.race.moved_plans import may_move, moved_choice, note_on_staying, other_use
from placer.placed.race.sequential_test import MIN_GAIN
from placer.placed.signature import Prepared
from placer.plan.call_plan import CallPlan
from placer.plan.verdict import DEFAULT, PLAN, Verdict

if TYPE_CHECKING:
    from placer.options import Options
    from placer.placed.signatures import Signatures
    from placer.tf.rewrite.taping import TapedFunction
    from placer.tf.trace.tracing import Trace
    from placer.verbs.solve import Solved


def begin(signatures: Signatures, prepared: Prepared) -> Prepared:
    """Lets the calls of a function race, where that is possible and a candidate is predicted to be faster than the default.

    Args:
        signatures: of the placed function.
        prepared: a call that is planned and rewritten.
    """
    solved, plan, run = prepared.solved, prepared.planned, prepared.run
    prepared = replace(prepared, solved=None)
    may_try = plan.verdict is None and (plan.races if solved is None else may_move(signatures, solved))
    if not is_wanted(signatures) or not may_try:
        signatures.unasked.stop()
    if plan.verdict is not None and plan.verdict.compiled_for:
        assert prepared.trace is not None
        return decided(signatures, prepared, CompiledCalls(prepared.trace, plan.verdict.compiled_for, run))
    if not is_wanted(signatures):
        return prepared
    if plan.verdict is not None:
        is_plain = plan.verdict.used == DEFAULT and not signatures.options.pins
        return decided(signatures, prepared, prepared.concrete if is_plain else run)
    dispatch = Dispatch(run, _first_taped_calls(signatures, prepared), run)
    if solved is not None:
        if solved.problem.num_devices == 1:
            remember(plan.changed(plan.placement))
            return prepared
        entrants = candidates(solved)
        assert prepared.trace is not None
        reason = _reason_against(signatures, prepared.trace, solved, entrants)
        if reason:
            signatures.unasked.stop()
        if entrants and not _may_gain(signatures, entrants):
            if not _try_moves(signatures, prepared, dispatch, entrants[0]):
                remember(plan.changed(plan.placement))
            return replace(prepared, timing=dispatch)
        if reason:
            return _by_prediction(signatures, prepared, entrants, reason)
        dispatch.alone = _race(signatures, prepared, entrants)
    elif plan.races:
        dispatch.alone = _planned_again(signatures, prepared)
    return replace(prepared, timing=dispatch)


def _planned_again(signatures: Signatures, prepared: Prepared) -> Runner:
    """Plans a signature again at its first eager call without a tape. So these calls race, which a remembered plan cannot."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with signatures.lock:
            if prepared.signature.current is not None and prepared.signature.current.call_plan is prepared.call_plan:
                signatures.forget(prepared.signature)
            signatures.latest = again = signatures.prepare(args, kwargs)
        return again.call(*args, **kwargs)

    return call


def decided(signatures: Signatures, prepared: Prepared, alone: Runner) -> Prepared:
    """A call whose plan has a verdict.

    Args:
        signatures: of the placed function.
        prepared: the call, with the function that runs its plan.
        alone: runs eager calls that no tape records.
    """
    if not is_wanted(signatures):
        return replace(prepared, timing=Dispatch(alone, prepared.run, prepared.run))
    watch = _watched(signatures, prepared, alone)
    return replace(prepared, timing=Dispatch(watch, _first_taped_calls(signatures, prepared), prepared.run))


def is_wanted(signatures: Signatures) -> bool:
    """Whether the options ask for a race."""
    return not signatures.plans and asks_for_race(signatures.options)


def asks_for_race(options: Options) -> bool:
    """Whether options ask for a race. A solver or an objective that the user chose is not put to the test."""
    chosen_by_user = options.solver != "auto" or options.objective != "step_time"
    return options.race == "force" or (options.race == "auto" and not chosen_by_user)


def _may_gain(signatures: Signatures, entrants: list[Candidate]) -> bool:
    """Whether there are several candidates, and one is predicted to gain what it must gain to be used."""
    default_ns = next(each.predicted_ns for each in entrants if each.name == DEFAULT)
    is_faster = min(each.predicted_ns for each in entrants) < (1 - MIN_GAIN) * default_ns
    return len(entrants) > 1 and (is_faster or signatures.options.race == "force")


def _reason_against(signatures: Signatures, trace: Trace, solved: Solved, entrants: list[Candidate]) -> str:
    """Why calls may not be given to different placements in turn; "" if they may."""
    from placer.tf.devices import connected_devices
    from placer.tf.run.calling import is_deterministic
    from placer.tf.run.learning import starts_anew

    if not entrants:
        return "TensorFlow's default exceeds a memory limit"
    if missing := {device.name for device in solved.machine.devices}.difference(connected_devices()):
        return f"they are planned for a machine with {', '.join(sorted(missing))}, which this process does not have"
    if solved.placement.graph.runs_replicas:
        return "they run replicas of a distribution strategy, which must agree; tune times whole calls"
    if signatures.moves_variables:
        return 'variables="move" moves variables before the first call'
    if signatures.options.on_out_of_memory == "replan":
        return 'on_out_of_memory="replan" plans again from the one plan that ran out of memory'
    if starts_anew(trace):
        return "each copy of the function would begin anew with its own state, such as the position of a random seed"
    if is_deterministic() and signatures.options.race == "auto":
        return "TensorFlow is set to be deterministic, and results can differ between devices in their last bits"
    return ""


def _by_prediction(signatures: Signatures, prepared: Prepared, entrants: list[Candidate], reason: str) -> Prepared:
    """A call that does not race. It runs by the plan only if that is predicted to be faster beyond doubt, or was asked for."""
    note = f"The calls do not race, so the plan is only predicted: {reason}."
    chosen = None if signatures.moves_variables else beyond_doubt(entrants)
    plan = prepared.plan
    if chosen is not None and chosen.name != PLAN:
        gain = three_digits(chosen.predicted_ns / plan.step_time_ns)
        note += (
            f" {chosen.name} is used: the best plan is predicted to be {gain}x faster, which may be an error of the prediction."
        )
        plan = chosen.placement
        assert prepared.trace is not None
        # Not the plain function: under a tape it would run without a plan for its gradient.
        prepared = replace(prepared, run=signatures.rewritten(prepared, prepared.trace, CallPlan.of(plan)))
    noted = prepared.planned.changed(replace(plan, notes=(note, *plan.notes)))
    remember(noted)
    return replace(prepared, call_plan=noted)


def _runner(signatures: Signatures, prepared: Prepared, candidate: Candidate) -> Runner:
    """The function that runs a candidate. TensorFlow's default is the plain function where that can do what the options ask."""
    if candidate.name == PLAN:
        return prepared.run  # type: ignore[no-any-return]
    if candidate.name == DEFAULT and not signatures.options.pins and has_requested_devices(prepared.plan.graph):
        return prepared.concrete  # type: ignore[no-any-return]
    assert prepared.trace is not None
    return signatures.rewritten(prepared, prepared.trace, CallPlan.of(candidate.placement))


def _race(signatures: Signatures, prepared: Prepared, entrants: list[Candidate]) -> Race:
    from placer.tf.run.exhausted import changes_nothing

    def settle(verdict: Verdict, winner: Candidate, run: Runner) -> None:
        current = prepared.signature.current
        if current is None or current.timing is None or current.timing.alone is not race:
            return  # it was planned again meanwhile
        dispatch = current.timing
        settled_plan = prepared.planned.changed(replace(winner.placement, verdict=verdict))
        settled = replace(prepared, call_plan=settled_plan, run=run, timing=dispatch)
        signatures.settle(settled)
        dispatch.alone, dispatch.traced = _watched(signatures, settled, run), run
        if not _try_moves(signatures, settled, dispatch, winner):
            remember(settled_plan)

    race = Race(entrants, partial(_runner, signatures, prepared), changes_nothing(prepared.plan.graph), settle)
    return race


def _try_moves(signatures: Signatures, prepared: Prepared, dispatch: Dispatch, fixed: Candidate) -> bool:
    """Lets the calls without a tape go on with a trial of other places of the variables, if these may move; whether they do.

    Args:
        signatures: of the placed function.
        prepared: a call as it runs after the race.
        dispatch: runs the calls; it is changed.
        fixed: what the calls run, with the variables where they are.
    """
    from placer.tf.run.exhausted import changes_nothing
    from placer.tf.state.variables import release_variables, rely_on_variables

    unasked, signature = signatures.unasked, prepared.signature
    if unasked.gate is None or unasked.give_back is not None or unasked.trial is not None:
        return False
    before = Dispatch(dispatch.alone, dispatch.taped, dispatch.traced)

    def reason_against(choice: MoveChoice) -> str:
        assert prepared.trace is not None
        return other_use(signatures, prepared) or choice.moves.reason_against(prepared.trace)

    def settle(settled: Prepared) -> bool:
        unasked.trial = None
        current = signature.current
        if current is None or current.timing is not dispatch:
            return False  # it was planned again meanwhile
        signatures.settle(replace(settled, timing=dispatch))
        return True

    def go_back() -> None:
        dispatch.alone, dispatch.taped, dispatch.traced = before.alone, before.taped, before.traced
        if not settle(prepared):
            signatures.forget(signature)

    def keep(choice: MoveChoice, verdict: Verdict, winner: Candidate) -> None:
        run = choice.runners[winner.name]
        release_variables(choice.first)
        rely_on_variables(run)
        unasked.lend(choice.moves, run, go_back)
        plan = prepared.planned.changed(replace(winner.placement, verdict=verdict))
        remember(plan)
        settled = replace(prepared, call_plan=plan, run=run)
        dispatch.alone = _watched(signatures, settled, run)
        dispatch.taped, dispatch.traced = _first_taped_calls(signatures, settled), run
        settle(settled)

    def leave(choice: MoveChoice | None, verdict: Verdict | None, reason: str) -> None:
        unasked.gate = None
        placement = prepared.plan
        if choice is not None and reason:
            note = note_on_staying(choice.candidates[0], fixed, reason)
            placement = replace(placement, notes=(note, *placement.notes))
        if verdict is not None:
            placement = replace(placement, verdict=verdict)
        plan = prepared.planned.changed(placement)
        remember(plan)
        settled = replace(prepared, call_plan=plan)
        dispatch.alone = before.alone if verdict is None else _watched(signatures, settled, prepared.run)
        settle(settled)

    def at_home(run: Runner) -> Runner:
        """A function that is called with the variables where the plan has them; the plain function where that cannot be."""

        def call(*args: Any, **kwargs: Any) -> Any:
            return (run if trial.end() else prepared.concrete)(*args, **kwargs)

        return call

    choose, plan_again = partial(moved_choice, signatures, prepared, fixed), partial(signatures.forget, signature)
    owner = TrialOwner(choose, reason_against, unasked.alone, keep, plan_again, leave)
    repeatable = changes_nothing(fixed.solved.placement.graph)
    verdict = prepared.planned.verdict
    trial = MoveTrial(fixed, prepared.run, prepared.concrete, verdict, repeatable, owner)
    dispatch.alone, dispatch.taped, dispatch.traced = trial, at_home(dispatch.taped), at_home(dispatch.traced)
    unasked.trial = trial
    return True


def _watched(signatures: Signatures, prepared: Prepared, run: Runner) -> Runner:
    """What runs calls after a race: a `Watch` around what runs them, if the candidate that they run was timed."""
    verdict = prepared.planned.verdict
    used = verdict.of(verdict.used) if verdict is not None else None
    if used is None or not used.median_ns:
        return run
    return Watch(run, used.median_ns, lambda: signatures.plan_again(prepared))


def _first_taped_calls(signatures: Signatures, prepared: Prepared) -> Runner:
    """Runs calls under a tape by the plan. The first one makes the plan of the call and its gradient; then its race begins."""
    signature, run = prepared.signature, prepared.run

    def call(*args: Any, **kwargs: Any) -> Any:
        results = run(*args, **kwargs)
        with signatures.lock:
            current, pair = signature.current, signature.pair
            if pair is not None and current is not None and current.timing is not None:
                signature.pair = None
                current.timing.taped = _pair_race(signatures, prepared, pair, current.timing)
        return results

    return call


def _pair_race(signatures: Signatures, prepared: Prepared, pair: Solved, dispatch: Dispatch) -> Runner:
    """What runs the next calls under a tape: a race, or the plan where there is nothing to race."""
    from placer.tf.run.exhausted import changes_nothing

    plan: TapedFunction = prepared.run
    signature = prepared.signature
    entrants = candidates(pair)
    pair_plan = signature.taped[signature.taped_text(higher=False)]
    assert prepared.trace is not None
    if not entrants or not _may_gain(signatures, entrants) or _reason_against(signatures, prepared.trace, pair, entrants):
        remember(pair_plan.changed(pair_plan.placement))
        return plan

    def runner(candidate: Candidate, around_backward: AroundBackward) -> Runner:
        def plan_of(trace: Trace, higher: bool) -> CallPlan:
            return signatures.plan_of_pair(signature, trace, higher) if higher else CallPlan.of(candidate.placement)

        return plan.with_pairs(plan_of, around_backward)

    def settle(verdict: Verdict, winner: Candidate, run: Runner) -> None:
        settled = pair_plan.changed(replace(winner.placement, verdict=verdict))
        remember(settled)
        signature.taped[signature.taped_text(higher=False)] = settled

        def call(*args: Any, **kwargs: Any) -> Any:
            results = run(*args, **kwargs)
            signatures.latest = replace(prepared, call_plan=settled)
            return results

        dispatch.taped = call

    def give_up() -> None:
        remember(pair_plan.changed(pair_plan.placement))
        dispatch.taped = plan

    return PairRace(entrants, runner, changes_nothing(pair.placement.graph), settle, give_up)
