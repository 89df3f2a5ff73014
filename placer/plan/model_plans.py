"""The plans of a SavedModel's signatures, as files in its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from placer.common.json_files import check_format, read_json, write_json
from placer.errors import PlanError
from placer.plan.placement import Placement

FOLDER = Path("assets.extra", "placer")
"""Where the plans are, in the folder of the model. TensorFlow leaves "assets.extra" of a SavedModel to others."""
INDEX = "index.json"
FORMAT, VERSION = "placer.model_plans", 1


@dataclass(frozen=True)
class ModelPlans:
    """The plans of a SavedModel's signatures, by name of the signature."""

    plans: Mapping[str, Placement] = field(default_factory=dict)
    unplaced: Mapping[str, str] = field(default_factory=dict)
    """By signature without a plan: the reason."""
    in_graph: bool = False
    """Whether the graph of the model has the planned devices."""

    def save(self, model: Path) -> None:
        """Writes the plans into the folder of a model.

        Raises:
            PlanError: they cannot be written.
        """
        folder = model / FOLDER
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PlanError(f"{folder} cannot be written: {error.strerror}.") from error
        files = {name: f"{quote(name, safe='')}.json" for name in self.plans}
        for name, plan in self.plans.items():
            plan.save(folder / files[name])
        index = {"format": FORMAT, "version": VERSION, "plans": files, "unplaced": dict(self.unplaced), "in_graph": self.in_graph}
        write_json(folder / INDEX, index)

    @classmethod
    def load(cls, model: Path) -> ModelPlans:
        """The plans in the folder of a model; none if it has none.

        Raises:
            PlanError: a file is broken.
        """
        index = model / FOLDER / INDEX
        if not index.exists():
            return cls()
        read = read_json(index)
        check_format(read, FORMAT, VERSION, str(index))
        try:
            files = {str(name): Path(file).name for name, file in read["plans"].items()}
            unplaced = {str(name): str(reason) for name, reason in read["unplaced"].items()}
        except (KeyError, TypeError, AttributeError) as error:
            raise PlanError(f"{index} is broken ({type(error).__name__}: {error}). Place the model again.") from error
        return cls(
            {name: Placement.load(index.parent / file) for name, file in files.items()}, unplaced, bool(read.get("in_graph"))
        )
