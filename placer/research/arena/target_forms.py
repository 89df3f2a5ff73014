"""The forms of targets that are problems, in words."""

FAMILY, ADVERSARIAL = "family:", "adversarial:"
GRAPHS = "a SavedModel's folder, a saved graph or plan (.json), a model in ONNX, MODULE:FUNCTION, or shipped:NAME"
PROBLEMS = (
    "a problem: family:SHAPE,KEY=NUMBER,... (made up), adversarial:LOSER,WINNER,KEY=NUMBER,..., a published one (iopddl:B, "
    "maxload:NAME, latency:NAME, dnn-partitioning:NAME), or a file (.npz, .graphml, .dax, .stg, .json of WfCommons or SAGA)"
)
