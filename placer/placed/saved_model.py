"""SavedModels with plans: `place_saved_model` writes one, and `load` makes its signatures run by the plans."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from placer.common.warning import warn
from placer.errors import OptionError, PlacerError, PlanError
from placer.options import Options
from placer.placed.decorators import checked_options
from placer.placed.function import PlacedFunction
from placer.placed.model_options import options_by_signature
from placer.plan.model_plans import ModelPlans
from placer.plan.placement import Placement
from placer.verbs.build_graph import build_graph


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A SavedModel whose signatures run by plans."""

    model: Any
    """What `tf.saved_model.load` gives. It owns the variables."""
    signatures: Mapping[str, Any]
    """By name: a `PlacedFunction`. A ConcreteFunction for a signature that cannot be placed, or whose graph has the devices."""


def place_saved_model(source: str | Path, out: str | Path, *, with_devices: bool = False, **options: Any) -> ModelPlans:
    """Plans every signature of a SavedModel, and writes the model with its plans.

    Args:
        source: the folder of a SavedModel, or the file of a frozen GraphDef. The placeholders of a frozen GraphDef are the inputs
            of its signature "serving_default", and the ops that nothing reads are the outputs.
        out: the folder to write, which must not exist. The graph in it has no devices, so that it runs anywhere; `load` applies
            the plans.
        with_devices: whether the graph has the planned devices instead, for programs that do not use placer.
        **options: the fields of `placer.Options`. ``sizes`` are those that the signatures leave open. By default they are those
            of the warm-up requests that the model has for TensorFlow Serving.

    Raises:
        OptionError: there is no model, or it has no signatures; `out` exists; an option that cannot be used.
        TraceError: the model cannot be read.
        PlacerError: a signature cannot be planned, as when no plan meets the limits; or `out` cannot be written.
    """
    from placer.tf.devices import full_names
    from placer.tf.rewrite.rewriting import rewrite
    from placer.tf.rewrite.saved_models import save_with_devices, write_saved_model
    from placer.tf.rewrite.warm_up_requests import open_sizes
    from placer.tf.run.eligibility import trace_if_placeable
    from placer.tf.trace.targets import load_model

    checked = checked_options(options)
    with _new_folder(Path(out)) as drafts:
        written = drafts / "model"
        write_saved_model(Path(source), written)
        model = load_model(written)
        if not model.signatures:
            raise OptionError(f"{source} has no signatures: save it with signatures=...")
        found = {name: trace_if_placeable(concrete, (), {}) for name, concrete in model.signatures.items()}
        traces = {name: trace for name, (trace, _) in found.items() if trace is not None}
        own = options_by_signature({name: build_graph(trace) for name, trace in traces.items()}, checked)
        for name, sizes in open_sizes(written, model.signatures).items():
            if name in own:
                own[name] = replace(own[name], sizes={**sizes, **own[name].sizes})
        plans = {}
        for name in traces:
            with _errors_of(name):
                plans[name] = PlacedFunction(model.signatures[name], own[name]).plan()
        if with_devices:
            written = drafts / "with_devices"
            functions = {name: rewrite(traces[name], full_names(_device_of(plan))) for name, plan in plans.items()}
            save_with_devices(model, {**model.signatures, **functions}, written)
        placed = ModelPlans(plans, {name: reason for name, (_, reason) in found.items() if reason}, with_devices)
        placed.save(written)
        written.rename(out)
    return placed


def load(path: str | Path, **options: Any) -> LoadedModel:
    """Loads a SavedModel. Its signatures run by the plans that `place_saved_model` saved with it.

    If this process does not have the devices of a plan, a warning says so, and the first call of the signature plans it for the
    devices here. So does the first call of a signature of a model without plans.

    Args:
        path: the folder.
        **options: the fields of `placer.Options`, for signatures that are planned here.

    Raises:
        OptionError: there is no SavedModel; an option that cannot be used.
        PlanError: a plan is broken, or the model was changed after it was planned.
        TraceError: the model cannot be loaded.
    """
    from placer.tf.devices import connected_devices
    from placer.tf.trace.targets import load_model

    checked, folder = checked_options(options), Path(path)
    model, saved = load_model(folder), ModelPlans.load(folder)
    for concrete in model.signatures.values():
        concrete.model = model  # keeps its variables alive as long as the signature
    missing = {name: set(_device_of(plan).values()).difference(connected_devices()) for name, plan in saved.plans.items()}
    if not saved.in_graph and (devices := set().union(*missing.values())):
        warn(
            f"{folder} has plans for {', '.join(sorted(devices))}, which this process does not have. The first call of each "
            f"signature plans it for the devices here: {', '.join(repr(name) for name in missing if missing[name])}"
        )
    here = {name: plan for name, plan in saved.plans.items() if not missing[name]}
    signatures = {
        name: concrete if saved.in_graph or name in saved.unplaced else _applied(concrete, here.get(name), checked)
        for name, concrete in model.signatures.items()
    }
    return LoadedModel(model, signatures)


def _device_of(plan: Placement) -> dict[str, str]:
    return {name: op.device for name, op in plan.ops.items()}


def _applied(concrete: Any, plan: Placement | None, options: Options) -> PlacedFunction:
    """A signature that runs by a plan; without one, its first call makes a plan."""
    if plan is None:
        return PlacedFunction(concrete, options)
    placed = PlacedFunction(concrete, Options(), plans=(plan,))
    placed.prepare()
    return placed


@contextmanager
def _errors_of(signature: str) -> Iterator[None]:
    """Lets the errors of the block name the signature."""
    try:
        yield
    except PlacerError as error:
        raise type(error)(f"signature {signature!r}: {error}") from error


@contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """A folder for drafts beside one that is to be written. It is deleted at the end of the block.

    Raises:
        OptionError: `out` exists.
        PlanError: an OSError in the block.
    """
    if out.exists():
        raise OptionError(f"{out} exists: name a folder that does not.")
    try:
        with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as folder:
            yield Path(folder)
    except (OSError, shutil.Error) as error:
        raise PlanError(f"{out} cannot be written: {getattr(error, 'strerror', None) or error}.") from error
