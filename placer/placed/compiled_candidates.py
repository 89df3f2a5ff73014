"""The candidates of a tuning that XLA compiles as a whole, one for each kind of device."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from placer.common.device_spec import parse
from placer.placed.contest import Contest, Entrant
from placer.placed.race.calls import first_line
from placer.plan.notes import in_short
from placer.plan.verdict import MOVED

if TYPE_CHECKING:
    from placer.placed.signature import Prepared
    from placer.plan.placement import Placement
    from placer.tf.run.outcomes import Outcome

COMPILE_S_PER_OP = 0.01
"""About how long XLA takes for an op. A function is not compiled if that is more than what is left of the budget."""
MAX_COMPILED_RATIO = 10
"""A function is not compiled for a device if all ops there are predicted to take longer than this multiple of the default."""
MAX_COMPARED = 3
"""The most placements with which results of a compiled function are compared."""


class CompiledCandidates:
    """Compiles the function of one call, and times it beside the placements of a contest.

    Args:
        contest: which has timed placements.
        prepared: the call.
        args, kwargs: of the call.
    """

    def __init__(self, contest: Contest, prepared: Prepared, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        assert prepared.trace is not None
        self._contest, self._prepared, self._trace = contest, prepared, prepared.trace
        self._args, self._kwargs = args, kwargs
        self._expected: list[Outcome] = []
        """What calls without XLA give; empty until it is first needed."""

    def race(self, used: str) -> list[str]:
        """Times the function compiled for each kind of device, with its variables where they are or moved there.

        Args:
            used: the device for which calls run it compiled already; "" for none.

        Returns:
            Why it was not compiled for a device, and the checks that it does not make if it is compiled, as sentences.
        """
        from placer.tf.run.calling import is_deterministic
        from placer.tf.run.compiling import unchecked

        if is_deterministic():
            return ["not compiled: TensorFlow is set to be deterministic, and last bits of compiled results can differ"]
        notes = []
        sites = {entrant.site: entrant for entrant in reversed(self._contest.timed)}
        for device in sorted(_devices(self._prepared.plan), key=lambda device: device != used):
            reasons = [self._compile(device, entrant, device == used) for entrant in sites.values()]
            if all(reasons):
                notes.append(f"not compiled for {device}: {'; '.join(dict.fromkeys(reasons))}")
        names = unchecked(self._trace)
        if names and any(entrant.compiled for entrant in self._contest.timed):
            notes.append(f"compiled, the function does not make the checks {in_short([repr(name) for name in names])}")
        return notes

    def _compile(self, device: str, where: Entrant, in_any_case: bool) -> str:
        """Compiles the function with variables as a candidate has them, and times it; returns why not, "" if it was timed.

        Args:
            device: the device to compile for.
            where: a candidate that was timed.
            in_any_case: whether it is compiled however little time is left.
        """
        from placer.tf.run.compiling import compiled
        from placer.tf.run.outcomes import outcome

        contest = self._contest
        if not in_any_case and COMPILE_S_PER_OP * len(where.plan.device_of) > contest.left_s():
            return "it may take longer than what is left of the budget"
        name = f"compiled on {device}" + (MOVED if where.moves else "")
        contest.report(name)
        call = (self._prepared.concrete, self._args, self._kwargs)
        try:
            with where.variables_moved():
                function, reason = compiled(self._trace, device, self._args, self._kwargs)
                if function is None:
                    return reason
                self._expected = self._expected or [outcome(run, *call) for run in self._uncompiled()]
                found = outcome(function, *call)
                differences = [plain.difference(found) for plain in self._expected]
                if all(differences):
                    return f"its results would not agree: {differences[0]}"
        except Exception as error:
            return first_line(error)
        fastest = contest.timed[0]
        contest.entrants[name] = Entrant(name, where.plan, function, where.moves, function)
        contest.race([fastest.name, name] if fastest.site == where.site else [name])
        return ""

    def _uncompiled(self) -> list[Callable[..., Any]]:
        """The plain function and its fastest placements. Their results differ, too: a GPU multiplies in TF32, a CPU does not."""
        placements = [e.run for e in self._contest.timed if not (e.moves or e.compiled)]
        return [self._prepared.concrete, *placements[:MAX_COMPARED]]


def _devices(plan: Placement) -> list[str]:
    """A device of each kind whose memory holds the whole function, and not far slower than the default."""
    first = {parse(device).type: device for device in reversed(plan.devices)}
    default, all_there = plan.baselines["tf_default"], {"CPU": "all_cpu", "GPU": "all_gpu"}
    baselines = {device: plan.baselines[all_there[kind]] for kind, device in first.items() if kind in all_there}
    limit_ns = MAX_COMPILED_RATIO * default.step_time_ns if default.feasible else math.inf
    return [device for device, baseline in baselines.items() if baseline.feasible and baseline.step_time_ns <= limit_ns]
