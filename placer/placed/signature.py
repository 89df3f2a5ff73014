"""What is known of one input signature of a placed function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from placer.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable

    from placer.graph.seen import Seen
    from placer.placed.race.calls import Dispatch
    from placer.plan.call_plan import CallPlan
    from placer.plan.placement import Placement
    from placer.tf.trace.tracing import Trace
    from placer.verbs.solve import Solved


@dataclass(eq=False)
class Signature:
    """One input signature: what its calls run now, and what was learnt from earlier calls."""

    function: str
    """Name of the placed function."""
    text: str
    """Such as "float32[8,224,224,3], int32[8]". For calls of a kind that is never placed: why not."""
    concrete: Any = None
    """The plain ConcreteFunction. None for calls of a kind that is never placed."""
    seen: Seen | None = None
    """What a run had that was made to learn sizes; an empty one while the first call learns. None before."""
    current: Prepared | None = None
    """What calls run. None: the next call is planned."""
    exportable: Any = None
    """The ConcreteFunction that `get_concrete_function` gives. None until it is asked for."""
    taped: dict[str, CallPlan] = field(default_factory=dict)
    """Plans of calls under a tape, each for the call and its gradient, by signature with the kind of tape."""
    pair: Solved | None = None
    """The plan of a call under a tape and its gradient, until its race begins."""
    replanned: bool = False
    """Whether a call ran out of memory and the signature was planned again, with success or without."""
    reduced_limits: Mapping[str, str | int] | None = None
    """The memory limits with which it was planned again. None for the limits of the options."""
    asked_for: bool = False
    """Whether the user asked for its plan before a call made one."""

    def taped_text(self, higher: bool) -> str:
        """The name of calls under a tape in `taped`; `higher` if their gradient has gradients too."""
        return f"{self.text} (taped{', higher order' if higher else ''})"


@dataclass(frozen=True, eq=False)
class Prepared:
    """A call that is traced and planned. A later plan of its signature is another object."""

    signature: Signature
    trace: Trace | None
    """None for a call that runs unplaced."""
    call_plan: CallPlan | None
    """What the call needs of its plan. None for a call that runs unplaced."""
    run: Any
    """The ConcreteFunction of the placement. None until the plan is applied, which needs its devices."""
    solved: Solved | None = None
    """The problem of the plan, until its race begins. None where calls do not race."""
    timing: Dispatch | None = None
    """Takes each call where calls are timed. None: `run` takes it."""

    @property
    def call(self) -> Callable[..., Any]:
        """What a call runs."""
        return self.run if self.timing is None else self.timing

    @property
    def concrete(self) -> Any:
        """The plain ConcreteFunction."""
        return self.signature.concrete

    @property
    def planned(self) -> CallPlan:
        """What the call needs of its plan.

        Raises:
            PlanError: the call runs unplaced.
        """
        if self.call_plan is None:
            raise PlanError(f"{self.signature.function} is left as it is for {self.signature.text}, so it has no plan")
        return self.call_plan

    @property
    def plan(self) -> Placement:
        """The plan.

        Raises:
            PlanError: the call runs unplaced.
        """
        return self.planned.placement
