"""Tuning a function on given arguments: learn sizes, measure ops, plan, time candidates in turns, and keep the fastest."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from placer.common.device_spec import parse
from placer.common.progress import Stage, progress
from placer.common.units import check_seconds
from placer.errors import OptionError, PlacementWarning, PlacerError, PlanError, TraceError
from placer.graph.seen import Seen
from placer.options import check_choice
from placer.placed.compiled_candidates import CompiledCandidates
from placer.placed.contest import Contest, Entrant
from placer.placed.lost_workers import names_lost_workers
from placer.placed.memory import remember
from placer.placed.present_devices import check_devices
from placer.placed.race.begin import decided
from placer.placed.race.calls import first_line
from placer.placed.race.candidates import MAX_PREDICTED_RATIO, candidates
from placer.placed.race.unasked_moves import MOVING_LOCK
from placer.placed.strategy.replicated_signatures import ReplicatedSignatures
from placer.placed.tuned import Tuned
from placer.plan.call_plan import CallPlan
from placer.plan.notes import in_short
from placer.plan.parts import BASELINE_NAMES
from placer.plan.verdict import DEFAULT, MOVED, PLAN, TUNED, Verdict

if TYPE_CHECKING:
    from placer.graph.op_graph import OpGraph
    from placer.placed.signature import Prepared
    from placer.placed.signatures import Signatures
    from placer.plan.placement import Placement
    from placer.tf.state.variables import Move
    from placer.tf.trace.tracing import Trace
    from placer.verbs.solve import Solved

MEASURING_SHARE, RACE_SHARE = 0.3, 0.15
"""Shares of the budget: for measuring single ops, and for what one race may take beyond calls of its fastest candidate."""
MAX_HARVESTS, HARVESTED_STEPS = 2, 3
"""How often times of ops are taken from real steps, and from how many steps each time."""
USED_BEFORE = ", used before"
"""End of the name of the candidate that calls ran before, if a new candidate has its name."""

Compile = Literal["try", "off"]
SideEffects = Literal["refuse", "allow"]


@names_lost_workers
def tune(
    signatures: Signatures,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    budget_s: float = 30.0,
    compiling: Compile = "try",
    side_effects: SideEffects = "refuse",
) -> Tuned:
    """Finds the fastest way to run calls with these arguments, which later calls of their signature then use.

    What calls have run so far, by an earlier verdict, is timed with the new candidates, and stays if none is faster.

    The function runs for real, many times. Its variables are put back. No other thread may call it meanwhile.

    Args:
        signatures: of the placed function.
        args, kwargs: of the calls.
        budget_s: about how long it may take, in seconds. Planning and compiling cannot be interrupted. TensorFlow's default, the
            plan and what calls have run so far are timed in any case.
        compiling: "try" also times the function compiled as a whole by XLA for each kind of device, if the results agree with
            those of the plain function or of a fast placement within `placer.tf.run.outcomes.TOLERANCES`; "off" does not.
        side_effects: "refuse" raises an error for a function whose effects cannot be put back; "allow" runs it all the same.

    Raises:
        OptionError: an option that cannot be used, or effects that cannot be put back.
        PlanError: the function is left as it is, or runs by plans that were given.
        PlacerError: planning failed, or the function cannot be run.
    """
    from placer.tf.run.calling import is_eager, is_taped

    check_seconds("budget_s", budget_s)
    check_choice("compile", compiling, ("try", "off"))
    check_choice("side_effects", side_effects, ("refuse", "allow"))
    if not is_eager() or is_taped():
        raise PlanError("tune makes calls of its own: call it outside of functions, tapes and accumulators")
    if signatures.plans:
        raise PlanError(f"{signatures.name} runs by plans that were given: place the function itself to tune it")
    with progress("tuning") as stage, warnings.catch_warnings():
        tuning = _Tuning(signatures, args, kwargs, budget_s, stage)
        warnings.simplefilter("ignore", PlacementWarning)  # the first plan gave them
        tuning.check_tasks()
        if side_effects == "refuse":
            tuning.check_effects()
        if not signatures.of_replicas:
            tuning.learn_sizes()
        tuning.race_placements()
        if compiling == "try":
            tuning.race_compiled()
        if not signatures.of_replicas:
            tuning.measure_ops()
            tuning.harvest()
        return tuning.settled()


class _Tuning:
    """The state of one tuning."""

    def __init__(
        self, signatures: Signatures, args: tuple[Any, ...], kwargs: Mapping[str, Any], budget_s: float, stage: Stage
    ) -> None:
        from placer.tf.run.learning import starts_anew
        from placer.tf.state import creating, variables

        self._started = monotonic()
        self._signatures, self._args, self._kwargs = signatures, args, kwargs
        self._budget_s, self._stage = budget_s, stage
        with signatures.lock:
            self._earlier = _first_plan(signatures, args, kwargs)
            """What calls have run so far."""
        signatures.unasked.undo("it was tuned")
        with signatures.lock:
            self._prepared: Prepared = signatures.plan(args, kwargs)
        check_devices(signatures.name, self._prepared.planned)
        assert self._prepared.trace is not None
        self._trace: Trace = self._prepared.trace
        creating.initialise_variables(self._trace.concrete)
        self._starts_anew = starts_anew(self._trace)
        self._contest = Contest(self._prepared.concrete, args, kwargs, self._left_s, RACE_SHARE * budget_s, self._at)
        self._planning_s = 0.0
        """How long the last planning took, in seconds."""
        self._learnt: list[str] = []
        self._notes: list[str] = []
        if self._prepared.planned.options.get("variables") == "move" and self._prepared.run is not None:
            variables.release_variables(self._prepared.run)  # other candidates may need them in other places

    def check_tasks(self) -> None:
        """Raises PlanError if calls run replicas in other processes, too."""
        from placer.tf.devices import is_task

        if is_task() and (self._signatures.of_replicas or self._prepared.plan.graph.runs_replicas):
            raise PlanError(
                f"{self._signatures.name} cannot be tuned: other processes run replicas in step with its own, and each would "
                "have its own verdict. Time whole steps, once of the plain function and once of the placed one with "
                'race="off", which runs the plan.'
            )

    # -- learning --------------------------------------------------------------------------------------------------

    def check_effects(self) -> None:
        """Raises OptionError if calls do something that cannot be put back."""
        from placer.tf.run.side_effects import lasting_effects

        if effects := lasting_effects(self._trace):
            raise OptionError(
                f"tuning runs {self._signatures.name} many times, and what these ops do cannot be put back: "
                f'{in_short(effects)}. Way out: side_effects="allow".'
            )

    def learn_sizes(self) -> None:
        """Runs one call that reports the sizes and rounds that the graph leaves open, unless an earlier call has done that."""
        from placer.placed.learn import learn, may_change_plan

        if self._prepared.signature.seen is None and may_change_plan(self._signatures, self._graph()):
            self._at("learning sizes")
            try:
                learn(self._signatures, self._args, self._kwargs)
                self._learnt.append("sizes and rounds of one call")
            except PlacerError as error:
                self._notes.append(f"sizes and rounds are assumed: {first_line(error)}")

    def measure_ops(self) -> None:
        """Measures the ops whose costs are least certain, each alone, and plans with them."""
        from placer.verbs.profile import profile

        self._at("measuring ops")
        if (within_s := min(MEASURING_SHARE * self._budget_s, self._left_s() - self._planning_s)) > 0:
            try:
                found = profile(self._graph(), within_s)
            except PlacerError as error:
                self._notes.append(f"no ops are measured: {first_line(error)}")
            else:
                if found.measured:
                    self._learnt.append(f"ops measured alone: {found.measured}, in {found.seconds:.0f} s")
                if found.remaining:
                    self._notes.append(f"ops not measured alone, since time for it was used up: {found.remaining}")
                self.race_placements(" after measuring")

    def harvest(self) -> None:
        """Takes the times of ops from real steps of fast placements, and plans with them, as long as time is left.

        Of the two fastest, the one with more copies in loops comes first: what these cost is least certain.
        """
        from placer.placed.harvest import harvest

        harvested: set[str] = set()
        for k in range(1, MAX_HARVESTS + 1):
            placements = [e for e in self._contest.timed if not (e.moves or e.compiled or e.name in harvested)]
            if not placements or self._left_s() <= self._planning_s:
                return
            entrant = max(placements[:2], key=lambda e: sum(t.count for t in e.plan.placement.transfers if t.count > 1))
            harvested.add(entrant.name)
            self._at(f"harvesting {entrant.name}")
            run = self._signatures.rewritten(self._prepared, self._trace, entrant.plan)
            try:
                call = replace(self._prepared, call_plan=entrant.plan, run=run)
                found = harvest(self._signatures, call, self._args, self._kwargs, HARVESTED_STEPS)
            except PlacerError as error:
                self._notes.append(f"no steps are harvested: {first_line(error)}")
                return
            self._learnt.append(f"ops timed in real steps of {entrant.name}: {len(found.nodes)}, in {found.steps} steps")
            self.race_placements(f" after harvest {k}")

    # -- candidates ------------------------------------------------------------------------------------------------

    def race_placements(self, when: str = "") -> None:
        """Plans with what is known now, and times those placements that are new; `when` is the end of their names."""
        self._race_fixed(when)
        has_variables = any(resource.kind == "variable" for resource in self._graph().resources.values())
        if has_variables and self._signatures.options.variables != "fixed":
            self._race_moved(when)

    def _race_fixed(self, when: str) -> None:
        """Times placements with variables where they are."""
        started = monotonic()
        placements = self._fixed_placements()
        if DEFAULT not in placements:
            self._notes.append("TensorFlow's default exceeds a memory limit, so nothing is compared with the plan")
        new = [name + when for name, placement in placements.items() if self._add(name, when, placement)]
        if not when:
            new = self._with_earlier(new)
        self._planning_s = monotonic() - started
        if len(new) == 1:
            new += [entrant.name for entrant in self._contest.timed if not entrant.moves][:1]
        if new:
            self._contest.race(new)
        if not self._contest.timed:
            outcomes = [entrant.outcome for entrant in self._contest.entrants.values()]
            raise PlacerError(f"{self._signatures.name} cannot be run: {outcomes[0]}")

    def _fixed_placements(self) -> Mapping[str, Placement]:
        """The placements to time with variables where they are, by name."""
        if isinstance(self._signatures, ReplicatedSignatures):
            return self._signatures.placements(self._trace, self._prepared.signature)
        solved = self._solved(variables="fixed")
        return {candidate.name: candidate.placement for candidate in candidates(solved)} or {PLAN: solved.placement}

    def _with_earlier(self, new: list[str]) -> list[str]:
        """Adds the placement that calls have run so far to the candidates that are timed next; those that must be come first."""
        verdict = self._earlier.verdict
        if verdict is None or verdict.compiled_for:
            return new
        name = verdict.used + (USED_BEFORE if verdict.used in self._contest.entrants else "")
        if not self._add(name, "", self._earlier.placement):
            return new
        if self._contest.entrants[name].moves:
            self._contest.race([name])
            return new
        return sorted([name, *new], key=lambda each: (each != name, each != DEFAULT))

    def _race_moved(self, when: str) -> None:
        """Times the plan with variables where it wants them, and all ops on one kind of device with the variables there."""
        rules: dict[str, dict[str, str]] = {PLAN: {}}
        rules |= {BASELINE_NAMES[name]: {"solver": name} for name in self._prepared.plan.baselines if name != "tf_default"}
        placements = [e.plan.placement for e in self._contest.entrants.values() if not e.compiled]
        limit_ns = MAX_PREDICTED_RATIO * min(placement.step_time_ns for placement in placements)
        for name, rule in rules.items():
            if self._left_s() <= 0:
                self._notes.append("not all places of variables are tried: the budget was used up")
                return
            try:
                placement = self._solved(variables="move", **rule).placement
                if placement.step_time_ns <= limit_ns and self._add(name, when + MOVED, placement):
                    self._contest.race([name + when + MOVED])
            except PlacerError as error:
                self._notes.append(f"not tried, {name}{MOVED}: {first_line(error)}")

    def race_compiled(self) -> None:
        """Times the function compiled as a whole for each kind of device, with its variables where they are or moved there."""
        if self._signatures.of_replicas or self._prepared.plan.graph.runs_replicas:
            self._notes.append("not compiled: XLA compiles for one device, and replicas run on several")
            return
        compiled = CompiledCandidates(self._contest, self._prepared, self._args, self._kwargs)
        self._notes += compiled.race(self._earlier.verdict.compiled_for if self._earlier.verdict else "")

    def _add(self, name: str, ending: str, placement: Placement) -> bool:
        """Adds a placement as a candidate, unless one that is known has the same devices; returns whether it was added."""
        entrants, plan = self._contest.entrants, self._call_plan(placement)
        if any(not known.compiled and known.plan.device_of == plan.device_of for known in entrants.values()):
            return False
        # Copies have random states of their own: the plain function's is left alone.
        is_plain = name == DEFAULT and not self._signatures.options.pins and not self._starts_anew
        run = self._prepared.concrete if is_plain else self._signatures.rewritten(self._prepared, self._trace, plan)
        entrants[name + ending] = Entrant(name + ending, plan, run, self._moves(plan))
        return True

    def _call_plan(self, placement: Placement) -> CallPlan:
        """What calls need of a placement."""
        if isinstance(self._signatures, ReplicatedSignatures):
            return self._signatures.plan_of_all(self._trace, placement)
        return CallPlan.of(placement, Seen.of_graph(placement.graph) or None, self._prepared.planned.memory_key)

    def _moves(self, plan: CallPlan) -> list[Move]:
        """The moves of variables from where they are now to where a plan has them."""
        from placer.tf.devices import full_names
        from placer.tf.state.variables import needed_moves

        return needed_moves(self._trace, full_names(plan.device_of))

    # -- the end ---------------------------------------------------------------------------------------------------

    def settled(self) -> Tuned:
        """Lets later calls run the best candidate, and reports."""
        from placer.tf.state.variables import name_of

        self._contest.confirm()
        best, elapsed_s = self._contest.chosen(), monotonic() - self._started
        rows = sorted((entrant.row() for entrant in self._contest.entrants.values()), key=lambda r: r.median_ns or float("inf"))
        device = best.compiled.device if best.compiled else ""
        verdict = Verdict(tuple(rows), best.name, TUNED, elapsed_s, device)
        self._use(best, verdict)
        if best.moves:
            places = [f"{name_of(move.variable)!r} on {parse(move.device).short}" for move in best.moves]
            self._notes.append(f"variables have other places now: {in_short(places)}")
        machine = best.plan.placement.machine
        return Tuned(self._signatures.name, machine, verdict, tuple(self._learnt), tuple(dict.fromkeys(self._notes)))

    def _use(self, best: Entrant, verdict: Verdict) -> None:
        """Lets later calls of the signature run a candidate. If random states belong to copies, a new copy runs from now on."""
        from placer.tf.rewrite.taping import TapedFunction
        from placer.tf.state import handle_holders, moving

        signatures, placed = self._signatures, self._contest.placement_beside(best)
        placement = replace(placed.plan.placement, verdict=verdict)
        plan = self._call_plan(placement)
        with MOVING_LOCK, signatures.lock:
            run = placed.run
            if self._starts_anew or not isinstance(run, TapedFunction):
                run = signatures.rewritten(self._prepared, self._trace, plan)
            moves = self._moves(plan)  # not those of the candidate, if variables could not be moved back from a trial
            if moves or plan.options.get("variables") == "move":
                moving.move(moves, run, signatures.options.stale, handle_holders.watched_variables())
            settled = replace(self._prepared, call_plan=plan, run=run, solved=None)
            alone = run if self._starts_anew or isinstance(best.run, TapedFunction) else best.run
            signatures.settle(decided(signatures, settled, alone))
            remember(plan)

    # -- small things ----------------------------------------------------------------------------------------------

    def _left_s(self) -> float:
        """The seconds that are left of the budget; below 0 if it is used up."""
        return self._started + self._budget_s - monotonic()

    def _at(self, doing: str) -> None:
        self._stage.at(1 - self._left_s() / self._budget_s, doing)

    def _graph(self) -> OpGraph:
        return self._signatures.graph_of(self._trace, self._prepared.signature.seen)

    def _solved(self, **changes: Any) -> Solved:
        """The plan by what is known now, with other options."""
        return self._signatures.solve(self._graph(), self._signatures.limits_of(self._prepared.signature), **changes)


def _first_plan(signatures: Signatures, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> CallPlan:
    """The plan by which calls run so far.

    Raises:
        PlanError: the function is left as it is, or it is that of a replica and called outside of a strategy's scope.
    """
    from placer.tf.run.calling import has_values_of_replicas, in_scope

    try:
        return signatures.plan(args, kwargs).planned
    except (TraceError, TypeError) as error:
        if in_scope() or not has_values_of_replicas(args, kwargs):
            raise
        raise PlanError(
            f"{signatures.name} cannot be called with values of replicas. To tune the function of a replica, time whole steps: "
            "call tune inside of strategy.scope()."
        ) from error
