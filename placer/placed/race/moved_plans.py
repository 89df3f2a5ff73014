"""Plans that have variables in other places than they are in: which are worth a trial, and what speaks against one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from placer.common.units import format_ns
from placer.common.warning import no_warnings
from placer.errors import PlacerError
from placer.graph.matching import matching
from placer.placed.memory import remember
from placer.placed.race.calls import first_line
from placer.placed.race.candidates import MAX_PREDICTED_RATIO, Candidate, exceeds_limit, is_same, with_dearer_copies
from placer.placed.race.move_trial import MIN_GAIN, MoveChoice
from placer.placed.race.unasked_moves import MOVING_LOCK
from placer.placed.signature import Prepared
from placer.plan.call_plan import CallPlan
from placer.plan.parts import BASELINE_NAMES
from placer.plan.verdict import MOVED, PLAN
from placer.problem.problem import PlacementProblem
from placer.problem.schedule import Simulator
from placer.solvers.registry import solver

if TYPE_CHECKING:
    from placer.placed.signatures import Signatures
    from placer.tf.state.temporary_moves import TemporaryMoves
    from placer.verbs.solve import Solved

CERTAIN_GAIN = 0.5
"""Share that must be gained where nothing is measured. Predicted steps are off by less than this factor nine times out of ten."""


def may_move(signatures: Signatures, solved: Solved) -> bool:
    """Whether variables of the function can be moved unasked: there are some that can, and no pin decides their places."""
    from placer.tf.devices import connected_devices

    options = signatures.options
    if options.variables != "auto" or signatures.plans:
        return False
    devices, resources = solved.problem.devices.names, solved.placement.graph.resources
    is_here = len(devices) > 1 and set(devices) <= set(connected_devices())
    movable = any(state.kind == "variable" and not state.stays for state in resources.values())
    return is_here and movable and not _pins_variables(solved)


def moved_candidates(signatures: Signatures, prepared: Prepared, fixed: Candidate) -> list[Candidate]:
    """The placements that are worth a trial, the one with the fewest risks first; all have the variables in the same places.

    They are: the plan that may move variables, and everything on one kind of device with the variables there. The first one
    takes least if copies take longer than predicted. One whose predicted step is far longer than another's is left out.

    Empty if none is predicted to gain `MIN_GAIN`, with the predicted times of copies or with longer ones; copies are the least
    certain. If the options force a race, none has to gain.

    Args:
        signatures: of the placed function.
        prepared: a call that is planned.
        fixed: what its calls run now, with the variables where they are.

    Raises:
        PlacerError: there is no such plan.
    """
    with no_warnings():
        solved = signatures.solve(fixed.solved.placement.graph, signatures.limits_of(prepared.signature), variables="move")
    found = [Candidate(PLAN + MOVED, solved, solved.solution)]
    for rule in ("all_cpu", "all_gpu"):
        if rule in solved.placement.baselines:
            solution = solver(rule).solve(solved.problem, "step_time", seed=solved.options.seed)
            candidate = Candidate(BASELINE_NAMES[rule] + MOVED, solved, solution)
            if not exceeds_limit(candidate) and not is_same(candidate, found[0]):
                found.append(candidate)
    dearer, places_now = with_dearer_copies(solved.problem), _places(fixed)
    found = sorted(
        (candidate for candidate in found if _places(candidate) != places_now),
        key=lambda candidate: _step_ns(candidate, dearer),
    )
    limit_ns = MAX_PREDICTED_RATIO * min((candidate.predicted_ns for candidate in found), default=0)
    tried = [c for c in found if c.predicted_ns <= limit_ns and _places(c) == _places(found[0])]
    is_promising = any(_gains(candidate, fixed) for candidate in tried)
    return tried if is_promising or signatures.options.race == "force" else []


def moved_choice(signatures: Signatures, prepared: Prepared, fixed: Candidate) -> MoveChoice | None:
    """What to try with variables in other places, ready to run; None if nothing is worth a trial.

    Raises:
        PlacerError: there is no such plan, or a variable cannot be moved.
    """
    assert prepared.trace is not None
    found = moved_candidates(signatures, prepared, fixed)
    if not found:
        return None
    plans = {candidate.name: CallPlan.of(candidate.placement) for candidate in found}
    runners = {name: signatures.rewritten(prepared, prepared.trace, plan) for name, plan in plans.items()}
    return MoveChoice(found, runners, moves_of(prepared, plans[found[0].name]))


def moves_of(prepared: Prepared, plan: CallPlan) -> TemporaryMoves:
    """The moves of variables that a plan of the function needs.

    Raises:
        MoveError: a variable cannot be moved.
    """
    from placer.tf.devices import full_names
    from placer.tf.state.temporary_moves import TemporaryMoves
    from placer.tf.state.variables import needed_moves

    assert prepared.trace is not None
    return TemporaryMoves(needed_moves(prepared.trace, full_names(plan.device_of)))


def other_use(signatures: Signatures, prepared: Prepared) -> str:
    """What else of the placed function uses the variables, in words; "" if there is nothing."""
    if any(signature is not prepared.signature for signature in signatures.known()):
        return signatures.unasked.other_arguments
    if prepared.signature.taped:
        return "calls under a tape use them"
    return signatures.unasked.other_use


def moved_by_prediction(signatures: Signatures, prepared: Prepared) -> Prepared:
    """A call whose variables have moved if that is predicted to gain `CERTAIN_GAIN`; for functions whose calls do not race.

    Otherwise the plan has a note if a gain is predicted, and the variables stay.

    Args:
        signatures: of the placed function.
        prepared: a call that is planned and not rewritten.
    """
    from placer.tf.run.calling import runs_on_its_own

    solved, plan = prepared.solved, prepared.planned
    is_meant = signatures.options.race == "off" and signatures.options.variables == "auto" and runs_on_its_own()
    if not is_meant or solved is None or not may_move(signatures, solved):
        return prepared
    fixed = Candidate(PLAN, solved, solved.solution)
    try:
        found = moved_candidates(signatures, prepared, fixed)
    except PlacerError:
        return prepared
    if not found:
        return prepared
    reason = "without a race, variables move only if that takes half as long"
    if found[0].predicted_ns <= (1 - CERTAIN_GAIN) * fixed.predicted_ns:
        moved = with_moved_variables(signatures, prepared, plan.changed(found[0].placement))
        if isinstance(moved, Prepared):
            remember(moved.planned)
            return moved
        reason = moved
    noted = plan.changed(replace(plan.placement, notes=(note_on_staying(found[0], fixed, reason), *plan.placement.notes)))
    remember(noted)
    return replace(prepared, call_plan=noted)


def with_moved_variables(signatures: Signatures, prepared: Prepared, plan: CallPlan) -> Prepared | str:
    """Moves variables to where a plan has them, if nothing else uses them.

    Args:
        signatures: of the placed function, none of whose calls runs.
        prepared: a call that is not rewritten.
        plan: a plan of its trace.

    Returns:
        The call, rewritten by the plan; or why the variables stay where they are, in words.
    """
    from placer.tf.state.temporary_moves import other_threads_use_tensorflow

    assert prepared.trace is not None
    try:
        run, moves = signatures.rewritten(prepared, prepared.trace, plan), moves_of(prepared, plan)
        if moves.are_made:
            return replace(prepared, call_plan=plan, run=run)
        if not MOVING_LOCK.acquire(blocking=False):
            return "another plan moves variables at this moment"
        try:
            reason = "other threads use TensorFlow" if other_threads_use_tensorflow() else other_use(signatures, prepared)
            if reason := reason or moves.reason_against(prepared.trace):
                return reason
            moves.make(run)
            signatures.unasked.lend(moves, run, lambda: signatures.forget(prepared.signature))
        finally:
            MOVING_LOCK.release()
    except PlacerError as error:
        return first_line(error)
    return replace(prepared, call_plan=plan, run=run)


def note_on_staying(moved: Candidate, fixed: Candidate, reason: str) -> str:
    """A note of a plan whose variables stay where they are although other places are predicted to be better."""
    return (
        f"With the variables moved, a step is predicted to take {format_ns(moved.predicted_ns)} instead of "
        f'{format_ns(fixed.predicted_ns)}. The variables stay: {reason}. Way out: variables="move".'
    )


def _gains(moved: Candidate, fixed: Candidate) -> bool:
    if moved.predicted_ns <= (1 - MIN_GAIN) * fixed.predicted_ns:
        return True
    fixed_ns = _step_ns(fixed, with_dearer_copies(fixed.solved.problem))
    return _step_ns(moved, with_dearer_copies(moved.solved.problem)) <= (1 - MIN_GAIN) * fixed_ns


def _step_ns(candidate: Candidate, problem: PlacementProblem) -> int:
    assert candidate.solution.assignment is not None
    return Simulator(problem).step_ns(candidate.solution.assignment)


def _places(candidate: Candidate) -> dict[str, str]:
    """The device of each variable, by name."""
    problem, assignment = candidate.solved.problem, candidate.solution.assignment
    assert assignment is not None
    device = dict(zip(problem.ops.names, assignment.device[problem.ops.unit].tolist(), strict=True))
    graph = candidate.solved.placement.graph
    return {op.resource: problem.devices.names[device[op.name]] for op in graph if op.resource in graph.resources}


def _pins_variables(solved: Solved) -> bool:
    graph = solved.placement.graph
    pinned = {name for pattern in solved.options.pins for name in matching(graph, pattern)}
    units = list(zip(graph, solved.constraints.op_unit.tolist(), strict=True))
    pinned_units = {unit for op, unit in units if op.name in pinned}
    return any(op.resource and unit in pinned_units for op, unit in units)
