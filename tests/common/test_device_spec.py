"""Device strings mean what tf.DeviceSpec says they mean, and nonsense is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.common.device_spec import DeviceSpec, parse
from placer.errors import OptionError

tf = pytest.importorskip("tensorflow")

NUMBERS = st.none() | st.integers(0, 12)
SPECS = st.builds(
    DeviceSpec,
    job=st.sampled_from([None, "localhost", "worker", "ps_2"]),
    replica=NUMBERS,
    task=NUMBERS,
    type=st.sampled_from(["CPU", "GPU", "TPU", "XLA_CPU"]),
    index=NUMBERS,
) | st.builds(DeviceSpec, job=st.sampled_from([None, "worker"]), replica=NUMBERS, task=NUMBERS)


def of_tensorflow(spec: DeviceSpec) -> object:
    return tf.DeviceSpec(spec.job, spec.replica, spec.task, spec.type, spec.index)


@st.composite
def spellings(draw: st.DrawFn) -> str:
    """Any spelling that TensorFlow takes: parts missing, reordered, in lower case, with and without "device:" and slashes."""
    spec = draw(SPECS)
    parts = [f"{key}:{value}" for key in ("job", "replica", "task") if (value := getattr(spec, key)) is not None]
    if spec.type is not None:
        index = "*" if spec.index is None else str(spec.index)
        kind = draw(st.sampled_from([spec.type, spec.type.lower()])) if spec.type in ("CPU", "GPU") else spec.type
        short = [kind, f"{kind}:{index}"] if spec.index is None else [f"{kind}:{index}"]
        parts.append(draw(st.sampled_from([f"device:{kind}:{index}", *(short if spec.type != "XLA_CPU" else [])])))
    return draw(st.sampled_from(["", "/"])) + "/".join(draw(st.permutations(parts)))


@given(spellings())
def test_reads_what_tensorflow_reads(text: str) -> None:
    assert of_tensorflow(parse(text)) == tf.DeviceSpec.from_string(text)


@given(SPECS, SPECS)
def test_merges_as_tensorflow_does(inner: DeviceSpec, outer: DeviceSpec) -> None:
    assert of_tensorflow(inner.merge(outer)) == of_tensorflow(outer).make_merged_spec(of_tensorflow(inner))


@given(SPECS)
def test_a_spec_matches_its_own_device_and_names_read_back(spec: DeviceSpec) -> None:
    if spec.type is None:
        with pytest.raises(OptionError, match="no device type"):
            _ = spec.full
        return
    assert spec.matches(spec.full)
    assert parse(spec.full).full == spec.full
    has_short_name = not spec.replica and not (spec.job in (None, "localhost") and spec.task)
    if spec.type != "XLA_CPU":  # needs "device:" before it, which a short name leaves out
        assert spec.matches(parse(spec.full).short) == has_short_name


@pytest.mark.parametrize(
    ("spec", "name", "allowed"),
    [
        ("", "GPU:1", True),
        ("GPU", "GPU:1", True),
        ("/gpu:1", "/job:localhost/replica:0/task:0/device:GPU:1", True),
        ("GPU:0", "GPU:1", False),
        ("CPU", "GPU:0", False),
        ("/job:localhost/replica:0/task:0", "CPU:0", True),
        ("/job:worker/GPU:0", "GPU:0", False),
        ("/job:worker", "/job:worker/task:3/device:CPU:0", True),
        ("worker:3/CPU", "worker:3/CPU:1", True),
        ("worker:3/CPU", "worker:2/CPU:1", False),
        ("CPU", "worker:3/CPU:1", True),
        ("CPU:1", "worker:3/CPU:1", False),
    ],
)
def test_matches(spec: str, name: str, allowed: bool) -> None:
    assert parse(spec).matches(name) is allowed


@pytest.mark.parametrize(
    "text",
    ["GP:0", "GPU:", "GPU:x", "GPU:-1", "GPU:0:1", "job:", "task:a", "GPU :0", "/CPU:0/GPU:0", "0", "worker:1", "CPU:0/worker:1"],
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(OptionError):
        parse(text)


def test_names() -> None:
    assert [parse(t).short for t in ("", "/device:GPU:*", "/job:a/cpu:3")] == ["", "GPU", "a:0/CPU:3"]
    assert parse("GPU:1").full == "/job:localhost/replica:0/task:0/device:GPU:1"
    assert parse("worker:2/GPU:1").full == "/job:worker/replica:0/task:2/device:GPU:1"
    assert parse("/job:worker/replica:0/task:2/device:GPU:1").short == "worker:2/GPU:1"
