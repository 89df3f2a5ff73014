"""TensorFlow's own formats: TensorBoard reads the runs and colours their graphs, TensorFlow and Netron read the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from placer.command.main import main
from placer.common.device_spec import parse
from placer.plan.placement import Placement
from placer.verbs.solve import solve
from tests.helpers.browser import ALL, chromium, open_in_netron, tensorboard, wait
from tests.helpers.graphs import layers, loop_then_wide, towers

pytest.importorskip("tensorboard")

PLANS = {
    "towers": solve(towers(), "2xh100", pins={"left/*": "GPU:1", "front/embed3": "CPU:0"}),
    "loop": solve(loop_then_wide(), "h100"),
    "layers": solve(layers(), "h100", pins={"layer1/*": "CPU:0"}),
}
each = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)


@each
def test_every_node_has_its_whole_device_name_and_its_inputs_in_order(plan: Placement) -> None:
    nodes = {node.name: node for node in tf.compat.v1.GraphDef.FromString(plan.view("netron")).node}
    assert list(nodes) == list(plan.ops)
    for op in plan.graph:
        node = nodes[op.name]
        assert (node.op, node.device) == (op.op_type, f"/job:localhost/replica:0/task:0/device:{plan.device_of(op.name)}")
        inputs = [(text.partition(":")[0], int(text.partition(":")[2] or 0)) for text in node.input if text[0] != "^"]
        made = [
            (source, tensor.src_index, tensor.dst_index)
            for source, _, data in plan.graph.graph.in_edges(op.name, data=True)
            for tensor in data["tensors"]
            if tensor.dst_index >= 0
        ]
        assert inputs == [(source, k) for source, k, _ in sorted(made, key=lambda entry: entry[2])]
        shapes = [[d.size for d in shape.dim] for shape in node.attr["_output_shapes"].list.shape]
        assert shapes == [[-1 if d is None else d for d in spec.shape] for spec in op.signature.outputs]


@each
def test_the_runs_hold_both_placements_and_the_predicted_step(plan: Placement, tmp_path: Path) -> None:
    plan.to_tensorboard(tmp_path)
    placements = {"before": lambda name: plan.ops[name].default, "after": plan.device_of}
    for run, device_of in placements.items():
        (file,) = (tmp_path / run).iterdir()
        _, first, second = (tf.compat.v1.Event.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(file)))
        graph = tf.compat.v1.GraphDef.FromString(first.graph_def)
        assert {node.name: node.device for node in graph.node} == {name: parse(device_of(name)).full for name in plan.ops}
        stats = tf.compat.v1.RunMetadata.FromString(second.tagged_run_metadata.run_metadata).step_stats
        nodes = {node.node_name: (node, device.device) for device in stats.dev_stats for node in device.node_stats}
        assert set(nodes) == set(plan.ops)
        for name, (node, device) in nodes.items():
            taken = plan.ops[name].time_ns.get(device_of(name), 0)
            assert device == parse(device_of(name)).full
            assert bool(node.all_end_rel_micros) == bool(taken)
            assert abs(node.all_end_rel_micros - taken / 1000) <= 1
            assert node.memory[0].total_bytes == sum(spec.nbytes for spec in plan.graph.op(name).signature.outputs)


def test_the_command_writes_them_where_it_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = PLANS["layers"]
    plan.save(tmp_path / "plan.json")
    for view in ("netron", "tensorboard"):
        command = ["show", str(tmp_path / "plan.json"), "--view", view]
        assert main(command) == 2
        assert "--out" in capsys.readouterr().err
        assert main([*command, "--out", str(tmp_path / view)]) == 0
    assert (tmp_path / "netron").read_bytes() == plan.view("netron")
    written = {str(path.relative_to(tmp_path / "tensorboard")): path.read_bytes() for path in tmp_path.glob("tensorboard/*/*")}
    assert written == plan.view("tensorboard")


def test_tensorboard_colours_the_graph_by_device_compute_time_and_memory(tmp_path: Path) -> None:
    plan = PLANS["loop"]
    plan.to_tensorboard(tmp_path)

    def choose(browser: Any, tag: str, words: str) -> bool:
        script = f"""{ALL}
            const found = [...all(document)].find(e => e.tagName === arguments[0] && e.textContent.trim() === arguments[1]);
            if (found && !found.disabled) found.click();
            return !!found && !found.disabled"""
        return bool(browser.execute_script(script, tag, words))

    def shown(browser: Any) -> str:
        script = (
            f"{ALL} return [...all(document)].filter(e => e.tagName === 'TF-GRAPH-CONTROLS').map(e => e.shadowRoot.textContent)"
        )
        return "".join(browser.execute_script(script))

    def painted(browser: Any) -> dict[str, str]:
        """The colours of ops and closed scopes, by name."""
        script = f"""{ALL}
            const elements = [...all(document)], found = {{}};
            const colour = stop => stop.getAttribute('style') || stop.getAttribute('stop-color');
            for (const node of elements.filter(e => e.matches('g.node'))) {{
                const fill = node.querySelector('.nodecolortarget')?.style.fill ?? '';
                const gradient = elements.find(e => e.id && fill.includes(`#${{e.id}}"`));
                if (fill) found[node.dataset.name] = gradient ? [...new Set([...gradient.children].map(colour))].join() : fill;
            }}
            return found"""
        return dict(browser.execute_script(script))

    with tensorboard(tmp_path) as served, chromium() as browser:
        browser.get(f"{served}#graphs")
        wait(lambda: choose(browser, "PAPER-RADIO-BUTTON", "Device"))
        wait(lambda: all(device in shown(browser) for device in plan.devices))
        colours = wait(lambda: painted(browser))
        shown_ops = [name for name in colours if name in plan.ops]
        assert {plan.device_of(name) for name in shown_ops} == {"CPU:0", "GPU:0"}
        for name in shown_ops:
            for other in shown_ops:
                assert (colours[name] == colours[other]) == (plan.device_of(name) == plan.device_of(other))
        wait(lambda: choose(browser, "PAPER-ITEM", "predicted step"))
        for colouring in ("Compute time", "Memory"):
            wait(lambda words=colouring: choose(browser, "PAPER-RADIO-BUTTON", words))
            assert wait(lambda: len(set(painted(browser).values())) > 2)


def test_netron_shows_the_ops_and_their_devices(tmp_path: Path) -> None:
    plan = PLANS["towers"]
    plan.write("netron", tmp_path / "plan.pb")
    with chromium() as browser, open_in_netron(browser, tmp_path / "plan.pb"):
        for op in ("front/hash0", "left/dense0/MatMul", "right/dense0/MatMul"):
            script = """
                const node = document.getElementById(`node-name-${arguments[0]}`).querySelector('.node-item-type');
                node.dispatchEvent(new MouseEvent('click', {bubbles: true}))"""
            browser.execute_script(script, op)
            sidebar = browser.find_element("id", "sidebar")
            wait(lambda op=op, sidebar=sidebar: op in sidebar.text)
            assert parse(plan.device_of(op)).full in sidebar.text
