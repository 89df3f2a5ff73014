"""The check that the devices of a plan are here, before calls run by it."""

from __future__ import annotations

from cost_models.machines import task_of
from placer.errors import DeviceError
from placer.plan.call_plan import CallPlan


def check_devices(function: str, plan: CallPlan) -> None:
    """Raises DeviceError if a plan uses a device that neither this process has nor a worker that it is connected to.

    Args:
        function: the name of the placed function.
        plan: of its calls.
    """
    from placer.tf.devices import connected_devices

    here = connected_devices()
    missing = [device for device in dict.fromkeys(plan.device_of.values()) if device not in here]
    if not missing:
        return
    way_out = "run it on a machine that has them, or plan without `devices`, for this process"
    if any(map(task_of, missing)):
        way_out = f"connect to the workers first, with placer.cluster(...); or {way_out}"
    raise DeviceError(
        f"calls of {function} cannot run here: the plan uses {', '.join(missing)}, and this process has {', '.join(here)}. "
        f"Way out: {way_out}. The plan itself is in .placement."
    )
