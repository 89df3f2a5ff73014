"""The terms of placer, each defined once: docs/glossary.md and the report's list of terms are made from this table.

`python -m placer.views.shared.glossary > docs/glossary.md` writes the page.
"""

from __future__ import annotations

from typing import NamedTuple


class Term(NamedTuple):
    """One term of the glossary."""

    name: str
    meaning: str
    """One or two sentences."""
    example: str
    in_report: bool = False
    """Whether the report uses it."""


TERMS = (
    Term(
        "op",
        "One node of the graph that a function traces to. Bodies of called functions, loops and branches are in it.",
        "A `MatMul` in the body of a loop of 64 rounds is one op that runs 64 times per step.",
        in_report=True,
    ),
    Term(
        "unit",
        "Ops that must share a device. A solver chooses a device for each unit, never for a single op of it.",
        "A variable and every op that reads or assigns it.",
    ),
    Term(
        "layer",
        "A name scope: the ops in it, the ops of their gradients, its variables, those that an optimizer keeps for them, and the "
        "ops that serve to update them.",
        "`embed`: the lookup, its gradient, the table and Adam's two tables for it.",
    ),
    Term(
        "bucket",
        "A range of batch sizes that has one plan.",
        "Batches of 1 to 8 run on the CPU, and those of 9 to 64 on the GPU: two buckets.",
    ),
    Term(
        "machine",
        "A description of what to plan for: its devices, their memory and speed, and the links between them.",
        '`"h100"`: one CPU device and one H100.',
    ),
    Term(
        "cluster",
        "Several processes planned for as one machine: the one that calls, and its workers, each a server of TensorFlow on "
        "another host. A device of a worker has the worker's number in its name.",
        "A file `cluster.toml` that names two workers with an H100 each: the devices are `CPU:0`, `worker:0/CPU:0`, "
        "`worker:0/GPU:0`, `worker:1/CPU:0` and `worker:1/GPU:0`.",
    ),
    Term(
        "task",
        "One process of a cluster, as TensorFlow counts them: `worker:1` is TensorFlow's `/job:worker/replica:0/task:1`.",
        '`pins={"embed": "worker:1/GPU:0"}`. A name without a task, such as `GPU:0`, is a device of the process that calls.',
    ),
    Term(
        "replica",
        "One of the copies of a function that a distribution strategy of TensorFlow runs, each on a device of its own.",
        "Two replicas of a `MirroredStrategy` run on GPU:0 and GPU:1, both by the plan of the first.",
    ),
    Term(
        "coordinator",
        "The process that schedules functions under a `ParameterServerStrategy` of TensorFlow: workers run them, and parameter "
        "servers hold the variables.",
        "`coordinator.schedule(step, args=(batches,))` runs `step` on the next free worker.",
    ),
    Term(
        "snapshot",
        "The GPU kernels of a TensorFlow release, in a file that comes with placer. Plans use it where TensorFlow is built "
        "without GPU support.",
        "A plan for an H100 made on a laptop with the package `tensorflow-cpu`.",
    ),
    Term(
        "target",
        "What to plan or solve: a function, a signature of a SavedModel, a saved graph or plan, or a problem. The command line "
        "calls it TARGET.",
        "`mymodule:train_step`, `shipped:detector`, `iopddl:B`.",
    ),
    Term(
        "instance",
        "A problem that is no placement problem, with its objective: a split problem (equal accelerators and CPUs) or a pairwise "
        "problem (a choice for each node, costs of pairs).",
        "`maxload:bert_l-3_inference`, `iopddl:B`.",
    ),
    Term(
        "place",
        "Where the bytes of a tensor are: the memory of a device, or the host memory that a device reads.",
        "The shape argument of a `Reshape` on GPU:0 is read from the host memory of GPU:0.",
        in_report=True,
    ),
    Term(
        "crossing",
        "A tensor that is made in one place and read in another, or that may be, depending on where its units are put.",
        "The output of a `Conv2D` on GPU:0 that a `NonMaxSuppressionV3` on CPU:0 reads.",
        in_report=True,
    ),
    Term(
        "control edge",
        "An edge without data: the op at its end runs after the op at its start. Between devices it is a transfer of 0 B.",
        "`tf.print` on CPU:0 under the control dependency of an op on GPU:0: a transfer of 0 B in 44 us.",
        in_report=True,
    ),
    Term(
        "copy",
        "One transfer of a tensor from one place to another. A tensor is copied once per place, however many ops read it there.",
        "Ten ops on CPU:0 read one tensor of GPU:0: one copy.",
        in_report=True,
    ),
    Term(
        "transfer",
        "All copies of one tensor to one other place in one step.",
        "A tensor that is made in a loop of 64 rounds and read on another device: one transfer of 64 copies.",
        in_report=True,
    ),
    Term(
        "step",
        "One call of the function.",
        "One training step: forward pass, gradient and update of the weights.",
        in_report=True,
    ),
    Term(
        "step time",
        "The time of one call as the execution model predicts it: ops and copies on different devices and links overlap. It "
        "includes what each call takes besides its ops, such as starting them.",
        "1 ms on the CPU and 1 ms on the GPU at the same time: a step time of 1 ms.",
        in_report=True,
    ),
    Term(
        "interval",
        "The range of step times to expect: the predicted step time times two factors. Of ten recorded placements of the same "
        "kind, eight took between these multiples of their predicted step time.",
        "`predicted  1.37 ms (1.08 ms to 2.44 ms) per step`.",
        in_report=True,
    ),
    Term(
        "total cost",
        "The sum of the times of all ops and copies of a step, as if nothing overlapped.",
        "1 ms on the CPU and 1 ms on the GPU: a total cost of 2 ms, whatever overlaps.",
        in_report=True,
    ),
    Term(
        "objective",
        "The quantity that a solver minimises: the step time or the total cost.",
        '`placer.solve(graph, objective="total_cost")`.',
        in_report=True,
    ),
    Term(
        "bound",
        "A proved lower bound on the objective: no placement has a lower value.",
        "A plan of 2.0 ms with a bound of 1.8 ms: the best placement takes between 1.8 and 2.0 ms.",
        in_report=True,
    ),
    Term(
        "gap",
        "(value - bound) / value: the share of the objective that a better plan saves at most. A gap of 0 is proved optimal.",
        "2.0 ms with a bound of 1.8 ms: a gap of 10%.",
        in_report=True,
    ),
    Term(
        "peak",
        "The most memory that a device holds at once during a step. Memory limits are limits on it.",
        "3 MiB of weights and at most 11 MiB of intermediate results: a peak of 14 MiB.",
        in_report=True,
    ),
    Term(
        "kept",
        "Memory that is held from step to step: variables and constants.",
        "The weights of a model, 257 MiB on GPU:0.",
        in_report=True,
    ),
    Term(
        "limit",
        "The memory that a device may hold: what TensorFlow may take there, or what the option `memory_limits` says.",
        '`memory_limits={"GPU:0": "8GiB"}`.',
        in_report=True,
    ),
    Term(
        "baseline",
        "A placement to compare with: TensorFlow's default, all ops on the CPU, or all on the first GPU, where kernels allow.",
        "TensorFlow's default at 2.54 ms: a plan of 1.18 ms is 2.16x faster.",
        in_report=True,
    ),
    Term(
        "pin",
        "A user's hard constraint on the devices of ops, given by a name, a glob of names, an op type or a variable.",
        '`pins={"embed/*": "CPU:0"}`.',
        in_report=True,
    ),
    Term(
        "scope",
        "The leading parts of an op's name, between slashes. A `tf.device` scope is another thing: code with a device.",
        "`encoder/layer_3` is a scope of `encoder/layer_3/MatMul`.",
        in_report=True,
    ),
    Term(
        "signature",
        "Of an op: its type, the types of its inputs and outputs, and its attributes; ops of one signature have one cost. "
        "Of a call: the types of its arguments; each has a plan of its own.",
        "`float32[8,224,224,3], int32[8]`.",
    ),
    Term(
        "source of a cost",
        "Where the time of an op comes from: measured, from a formula, or given by the user.",
        "`placer profile` turns costs from a formula into measured ones.",
        in_report=True,
    ),
    Term(
        "source of a size",
        "Where a size or a number of rounds comes from: exact (the graph says it), seen (a run had it), given (the user "
        "said it), bound (an upper bound follows from the graph), or assumed (nothing is known).",
        "The rows of `tf.boolean_mask(x, mask)` have the bound of the rows of `x`.",
        in_report=True,
    ),
    Term(
        "end",
        "One of two values for everything whose source is assumed or bound: small (the low end: 1 round, sizes of 1) or large "
        "(the high end: 500 rounds, sizes of 256, or the bound if there is one).",
        "At the high end, a loop of 10 assumed rounds runs 500 rounds, and the plan takes 9.5 ms instead of 0.6 ms.",
        in_report=True,
    ),
    Term(
        "schedule",
        "The start and the end of every op and copy of a step, as the execution model predicts them.",
        "The timeline of the report draws it.",
        in_report=True,
    ),
    Term(
        "candidate",
        "A placement that calls are timed with, or another way to run the function: the plan, TensorFlow's default, all ops on "
        "one kind of device, or a plan with fewer copies.",
        "A function with three candidates: the plan, TensorFlow's default, and all on CPU.",
        in_report=True,
    ),
    Term(
        "race",
        "The first calls of a function, each of which runs one of several candidates and is timed. Slower candidates leave.",
        "After 14 calls one of four candidates is left, and all later calls run it.",
        in_report=True,
    ),
    Term(
        "trial",
        "Calls that time a function with its variables in other places. The variables stay there only if calls then take at "
        "least 15% less time.",
        "A small model's variables move from GPU:0 to CPU:0, and the step takes 0.15 ms instead of 0.52 ms: they stay.",
    ),
    Term(
        "verdict",
        "The result of a race or a tuning: the measured time of each candidate, the candidate that later calls run, and why the "
        "race or the tuning ended.",
        "`step.placement.verdict.used` is `TensorFlow's default`.",
        in_report=True,
    ),
    Term(
        "tuning",
        "Finding the fastest way to run a function on given arguments: learning, measuring, planning, and timing the candidates.",
        "`step.tune(images, labels, budget_s=30)`.",
    ),
    Term(
        "compiled as a whole",
        "Made into one program by XLA for one device. No op of it can be placed by itself.",
        '`tf.function(step, jit_compile=True)`, or the candidate "compiled on GPU:0" of a tuning.',
    ),
    Term(
        "replay",
        "Computing a schedule again after a change of the placement, from the first op that the change can affect.",
        "Moving the last op of a graph replays only that op.",
    ),
    Term(
        "memory key",
        "What a remembered plan is found by: text that stands for its graph, its options, its machine and the versions.",
        "A function of which one constant changes has another memory key, so it is planned anew.",
    ),
    Term(
        "memory price",
        "The Lagrange multiplier of a memory limit: a time charged for each byte held, raised while a limit is exceeded.",
        "With a price of 1 ns per MiB on GPU:0, a variable of 100 MiB has 100 ns added to its cost there.",
    ),
    Term(
        "incremental cost",
        "The change of the total cost by a move, computed from the moved ops and their tensors alone.",
        "Moving one op with two inputs looks at three tensors, not at the whole graph.",
    ),
    Term(
        "repair",
        "Moving units of a placement that exceeds a memory limit until it fits.",
        "The largest variables of GPU:0 move to CPU:0 until GPU:0 is below its limit.",
    ),
    Term(
        "local search",
        "Changing a placement by one move after the other, each of which improves it, until none does.",
        "The stop reason is then a local optimum.",
    ),
)


def markdown() -> str:
    """The page docs/glossary.md."""
    rows = [f"| **{term.name}** | {term.meaning} | {term.example} |" for term in TERMS]
    lines = [
        "# Glossary",
        "",
        "Each term has one meaning in code, messages and docs. `python -m placer.views.shared.glossary` prints this page.",
        "",
        "| term | meaning | example |",
        "|---|---|---|",
        *rows,
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
