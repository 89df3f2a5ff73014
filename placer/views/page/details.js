// The details of the selection: an op as `placer show --explain` explains it, a scope, or the tensors between two boxes.

class Details {
  constructor(plan, app) {
    Object.assign(this, { plan, app, place: byId("details") });
    this.fill([el("h2", {}, "Nothing is selected"), el("p", { class: "soft" }, "Click a box, a table row or a slice of the timeline, or search for an op. Its device and the reason for it are then shown here.")]);
  }

  fill(parts) {
    this.place.replaceChildren(...parts.flat(Infinity).filter(Boolean));
    this.place.scrollTop = 0;
  }

  chip(device) {
    const [fill, line] = this.plan.paintOf(device);
    return el("span", { class: "chip", "data-device": device, style: { background: fill, borderColor: line } }, this.plan.devices[device].name);
  }

  link(op, text = this.plan.ops.name[op]) {
    return el("button", { type: "button", class: "link", onclick: () => this.app.selectOp(op) }, breakable(text));
  }

  op(op) {
    const { plan } = this, { ops } = plan, text = (column) => plan.text(ops[column][op]);
    const here = ops.device[op], runs = ops.count[op] === 1 ? "" : `, ${Number(ops.count[op].toPrecision(4))} runs per step`;
    const others = (plan.units[ops.unit[op]] ?? []).filter(([, , why]) => !text("why").includes(plan.text(why)));
    const members = plan.membersOf(ops.unit[op]).filter((other) => other !== op);
    const slowest = Math.max(1, ...ops.time[op]);
    const leaf = plan.leafOf[op];
    this.fill([
      el("h2", {}, breakable(ops.name[op])),
      el("p", {}, `${text("type")}${runs} on `, this.chip(here), " ", leaf >= 0 ? el("button", { type: "button", onclick: () => this.app.reveal(plan.nodes[leaf]) }, "Show in graph") : el("span", { class: "soft" }, "not drawn: it is a constant or the handle of a variable, and moves nothing in a step")),
      el("h3", {}, "Why"),
      el("p", { id: "why" }, el("b", {}, text("reason")), `: ${text("why")}`),
      others.map(([kind, other, why]) => el("p", {}, el("b", {}, plan.text(kind)), `: ${plan.text(why)} (`, other >= 0 ? this.link(other) : "", ")")),
      el("h3", {}, "Cost per device"),
      el("table", { id: "costs" }, el("tbody", {}, plan.devices.map((device, k) => el("tr", { class: k === here ? "here" : "" },
        el("td", {}, swatch(plan, k), device.name),
        el("td", { class: "number" }, ops.time[op][k] < 0 ? "no kernel" : formatNs(ops.time[op][k])),
        el("td", { class: "soft" }, plan.text(ops.sources[op][k])),
        el("td", { style: { width: "35%" } }, ops.time[op][k] > 0 ? el("span", { class: "meter", "aria-hidden": "true" }, el("i", { style: { width: `${Math.max(1.5, (100 * ops.time[op][k]) / slowest)}%`, background: plan.paintOf(k)[1] } })) : ""))))),
      text("refusals") ? el("p", { class: "soft" }, `not on ${text("refusals")}`) : null,
      ops.length[op] ? el("p", { class: "soft" }, `predicted from ${formatNs(ops.start[op])} to ${formatNs(ops.start[op] + ops.length[op])} of the step`) : null,
      ops.default[op] >= 0 && ops.default[op] !== here ? el("p", {}, "TensorFlow itself would run it on ", this.chip(ops.default[op])) : null,
      text("flags") ? el("p", {}, `flags: ${text("flags")}`) : null,
      members.length ? [el("h3", {}, `Together with ${members.length} ${members.length === 1 ? "op" : "ops"}`), el("p", { class: "soft" }, text("group") || "they share a device"),
        this.#some(members.map((other) => el("li", {}, this.link(other))))] : null,
      this.#inputs(op),
      this.#outputs(op),
    ]);
  }

  #some(items, most = 12) {
    const list = el("ul", {}, items.slice(0, most));
    if (items.length > most) {
      const more = el("button", { type: "button", onclick: () => { more.remove(); list.append(...items.slice(most, 1000)); } }, `${items.length - most} more`);
      return [list, more];
    }
    return [list];
  }

  #tensor(op, output, towards) {
    const { plan } = this, [type, nbytes] = plan.outputs[plan.ops.outputs[op][output]];
    const constant = plan.text(plan.ops.role[op]) === "constant";
    const copies = (plan.transfersOf.get(op) ?? []).filter((t) => t.output === output && (towards < 0 || t.dst === towards));
    return el("li", {}, this.link(op, plan.tensorName(op, output)), ` ${type}, ${formatBytes(nbytes)}, `,
      constant ? "a constant, kept on each device that reads it" : ["made on ", plan.devices[plan.ops.device[op]].name],
      copies.map((t) => el("div", { class: "copy" }, `copied to ${plan.devices[t.dst].name}${t.host && plan.devices[t.dst].name.includes("GPU") ? " (host memory)" : ""} in ${formatNs(t.time)}`)));
  }

  /** What a control edge from an op to a device takes, if the device is another. */
  #signals(op, device) {
    return this.plan.copies(op, -1, device).map((t) => el("div", { class: "copy" }, `a control edge to ${this.plan.devices[t.dst].name}, ${formatNs(t.time)}: ${WAITING}`));
  }

  #inputs(op) {
    const { plan } = this, seen = new Map(), waits = new Set();
    for (const e of plan.incoming[op]) {
      if (plan.output[e] < 0) waits.add(plan.from[e]);
      else seen.set(plan.tensorName(plan.from[e], plan.output[e]), [plan.from[e], plan.output[e]]);
    }
    return [
      seen.size ? [el("h3", {}, "In"), this.#some([...seen.values()].map(([from, output]) => this.#tensor(from, output, plan.ops.device[op])))] : null,
      waits.size ? [el("h3", {}, "Waits for"), this.#some([...waits].map((from) => el("li", {}, this.link(from), this.#signals(from, plan.ops.device[op]))))] : null,
    ];
  }

  #outputs(op) {
    const { plan } = this, readers = [];
    for (let e = plan.outStart[op]; e < plan.outStart[op + 1]; e++) if (!readers.includes(plan.to[e])) readers.push(plan.to[e]);
    return [
      plan.ops.outputs[op].length ? [el("h3", {}, "Out"), this.#some(plan.ops.outputs[op].map((_, k) => this.#tensor(op, k, -1)))] : null,
      readers.length ? [el("h3", {}, "Read by"), this.#some(readers.map((reader) => el("li", { class: "reader" }, swatch(plan, plan.ops.device[reader]), this.link(reader))))] : null,
    ];
  }

  scope(node) {
    const { plan, app } = this, open = app.graph.isOpen(node), leaves = [];
    const walk = (part) => (part.op >= 0 ? leaves.push(part.op) : part.children.forEach(walk));
    walk(node);
    leaves.sort((a, b) => plan.ownTime[b] - plan.ownTime[a]);
    this.fill([
      el("h2", {}, breakable(node.label)),
      el("p", {}, `${node.ops} ops, ${formatNs(plan.nodeTime(node))}${node.crossings ? `, ${node.crossings} edges inside cross between devices` : ""}`),
      el("p", {}, el("button", { type: "button", id: "toggle", onclick: () => app.toggle(node) }, open ? "Close" : "Open"), " ", el("button", { type: "button", onclick: () => app.reveal(node) }, "Show in graph")),
      el("table", {}, el("tbody", {}, plan.devices.map((device, k) => (node.held[k] ? el("tr", {}, el("td", {}, this.chip(k)), el("td", { class: "number" }, `${node.held[k]} ops`), el("td", { class: "number" }, formatNs(node.time[k]))) : null)))),
      el("h3", {}, "Ops that take longest"),
      this.#some(leaves.slice(0, 200).map((op) => el("li", { class: "reader" }, swatch(plan, plan.ops.device[op]), this.link(op), el("span", { class: "soft number" }, `\u00a0 ${formatNs(plan.ownTime[op])}`)))),
    ]);
  }

  flow(flow) {
    const { plan, app } = this, [from, to] = [plan.nodes[flow.from], plan.nodes[flow.to]];
    const inside = (op, node) => {
      for (let at = plan.nodes[plan.leafOf[op]]; at; at = at.parent) if (at === node) return true;
      return false;
    };
    const tensors = new Map();
    for (let e = 0; e < plan.from.length; e++) {
      if (plan.leafOf[plan.from[e]] < 0 || plan.leafOf[plan.to[e]] < 0 || !inside(plan.from[e], from) || !inside(plan.to[e], to)) continue;
      tensors.set(plan.tensorName(plan.from[e], plan.output[e]), [plan.from[e], plan.output[e], plan.to[e]]);
    }
    const name = (node) => el("button", { type: "button", class: "link", onclick: () => app.select(node) }, plan.shortLabel(node));
    this.fill([
      el("h2", {}, "From ", name(from), " to ", name(to)),
      el("p", {}, flow.crosses ? el("span", { class: "copy" }, flow.crossing ? `${formatBytes(flow.crossing)} cross in ${formatNs(flow.time)} per step` : `control edges cross in ${formatNs(flow.time)} per step: ${WAITING}`) : `${formatBytes(flow.nbytes)}, nothing crosses here`),
      this.#some([...tensors.values()].map(([op, output, reader]) => (output < 0 ? el("li", {}, this.link(reader), " waits for ", this.link(op)) : this.#tensor(op, output, plan.ops.device[reader])))),
    ]);
  }
}
