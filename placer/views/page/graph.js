// The drawing: boxes for closed scopes and for the ops of open ones, and arrows for the tensors between them.

const MAX_BOXES_AT_FIRST = 44, MIN_READABLE_ZOOM = 0.6, MARGIN = 24;

class GraphView {
  constructor(plan, app) {
    this.plan = plan;
    this.app = app;
    this.open = new Set();
    this.cy = cytoscape({ container: byId("canvas"), minZoom: 0.05, maxZoom: 2.5, boxSelectionEnabled: false });
    this.cy.on("tap", "node", (event) => app.select(plan.nodes[event.target.data("node")]));
    this.cy.on("dbltap", "node", (event) => app.toggle(plan.nodes[event.target.data("node")]));
    this.cy.on("tap", "edge", (event) => app.selectFlow(event.target.data()));
    this.cy.on("mouseover", "node", () => (byId("canvas").style.cursor = "pointer"));
    this.cy.on("mouseout", "node", () => (byId("canvas").style.cursor = ""));
    byId("fit").onclick = () => this.fit();
    byId("closer").onclick = () => this.zoom(1.3);
    byId("farther").onclick = () => this.zoom(1 / 1.3);
    byId("reset").onclick = () => this.openAtFirst();
    new ResizeObserver(() => this.cy.resize()).observe(byId("drawing"));
    this.legend();
  }

  isOpen = (node) => this.open.has(node.id);

  /**
   * Opens scopes as long as all of the drawing can be read at once: those around the selected op first, then those with crossings
   * inside, then those that take longest. Groups of siblings stay closed, since one sibling shows as much as all.
   */
  openAtFirst() {
    const { plan } = this, around = new Set();
    this.open = new Set([plan.root.id]);
    for (let above = this.app.selected?.parent; above; above = above.parent) around.add(above);
    let shown = plan.root.children.length;
    const opens = (node) => node.op < 0 && !/\*$| … /.test(node.label);
    const closed = plan.root.children.filter(opens);
    const urgency = (node) => (around.has(node) ? 1e20 : node.crossings ? 1e18 : 0) + plan.nodeTime(node);
    const fits = () => this.#fittingZoom(this.#arranged().at) >= MIN_READABLE_ZOOM, room = fits();
    while (room && closed.length) {
      closed.sort((a, b) => urgency(a) - urgency(b));
      const node = closed.pop(), more = node.children.length - 1;
      if (shown + more > MAX_BOXES_AT_FIRST) continue;
      this.open.add(node.id);
      if (fits()) {
        shown += more;
        closed.push(...node.children.filter(opens));
      } else this.open.delete(node.id);
    }
    this.app.opened();
    this.fit();
  }

  /** The zoom at which a drawing fits into the canvas. */
  #fittingZoom(at) {
    const { clientWidth, clientHeight } = byId("canvas"), boxes = [...at.values()];
    const extent = (axis, size) => Math.max(...boxes.map((box) => box[axis] + box[size] / 2)) - Math.min(...boxes.map((box) => box[axis] - box[size] / 2));
    return Math.min((clientWidth - 2 * MARGIN) / extent("x", "width"), (clientHeight - 2 * MARGIN) / extent("y", "height"));
  }

  setOpen(node, open) {
    if (open) for (let above = node; above; above = above.parent) this.open.add(above.id);
    else this.open.delete(node.id);
  }

  /** The box of each op, the nodes to draw, and the open scopes. */
  #boxes() {
    const box = new Int32Array(this.plan.count).fill(-1), drawn = [], scopes = [];
    const close = (node, id) => {
      if (node.op >= 0) box[node.op] = id;
      else for (const child of node.children) close(child, id);
    };
    const walk = (scope) => {
      for (const child of scope.children) {
        if (this.isOpen(child)) {
          scopes.push(child);
          walk(child);
        } else {
          drawn.push(child);
          close(child, child.id);
        }
      }
    };
    walk(this.plan.root);
    return { box, drawn, scopes };
  }

  /** The flows between boxes. Each tensor counts once per pair of boxes; copies count where they are made. */
  #flows(box) {
    const { plan } = this, flows = new Map();
    for (let e = 0; e < plan.from.length; e++) {
      const from = box[plan.from[e]], to = box[plan.to[e]];
      if (from < 0 || to < 0 || from === to) continue;
      const key = `${from} ${to}`;
      let flow = flows.get(key);
      if (!flow) flows.set(key, (flow = { from, to, nbytes: 0, crossing: 0, time: 0, shares: false, last: "", edges: 0 }));
      flow.edges++;
      const tensor = `${plan.from[e]}:${plan.output[e]}`;
      if (flow.last !== tensor) flow.nbytes += plan.bytesOf(plan.from[e], plan.output[e]);
      flow.last = tensor;
      if (plan.kind[e] === CROSSES) {
        for (const copy of plan.copies(plan.from[e], plan.output[e], plan.ops.device[plan.to[e]])) {
          flow.crossing += copy.nbytes * copy.count;
          flow.time += copy.time;
        }
        flow.crosses = true;
      } else if (plan.kind[e] !== STAYS) flow.shares = true;
    }
    return [...flows.values()];
  }

  /** Marks flows that cross nothing and whose ends a longer path of other flows connects too. */
  #markRepeats(flows) {
    const after = new Map(), span = (flow) => Math.abs(flow.to - flow.from);
    for (const { from, to } of flows) after.set(from, (after.get(from) ?? new Set()).add(to));
    const reaches = (start, target) => {
      const seen = new Set([start]), stack = [start];
      while (stack.length) {
        for (const next of after.get(stack.pop()) ?? []) {
          if (next === target) return true;
          if (!seen.has(next)) stack.push(next);
          seen.add(next);
        }
      }
      return false;
    };
    for (const flow of flows.filter(({ crosses, shares }) => !crosses && !shares).sort((a, b) => span(b) - span(a))) {
      after.get(flow.from).delete(flow.to);
      flow.repeats = reaches(flow.from, flow.to);
      if (!flow.repeats) after.get(flow.from).add(flow.to);
    }
  }

  /** What is drawn, and where: the box of each op, the nodes, the open scopes, the texts of the nodes and the place of each box. */
  #arranged() {
    const { plan } = this, { box, drawn, scopes } = this.#boxes(), links = new Map(), linked = new Set();
    for (let e = 0; e < plan.from.length; e++) {
      const from = box[plan.from[e]], to = box[plan.to[e]], key = from * plan.nodes.length + to;
      if (from < 0 || to < 0 || from === to || linked.has(key)) continue;
      linked.add(key);
      let a = plan.nodes[from], b = plan.nodes[to];
      const scope = plan.meeting(a, b);
      while (a.parent !== scope) a = a.parent;
      while (b.parent !== scope) b = b.parent;
      if (!links.has(scope)) links.set(scope, []);
      links.get(scope).push([a, b]);
    }
    const texts = new Map(drawn.map((node) => [node, this.#label(node)]));
    const size = (node) => {
      const longest = Math.max(...texts.get(node).split("\n").map((line) => line.length));
      return { width: Math.max(96, Math.min(250, 7.2 * longest + 24)), height: 40 };
    };
    return { box, drawn, scopes, texts, at: arranged(plan.root, this.isOpen, size, links) };
  }

  draw() {
    const { plan } = this, { box, drawn, scopes, texts, at } = this.#arranged(), flows = this.#flows(box);
    this.#markRepeats(flows);
    const elements = [];
    for (const node of [...scopes, ...drawn]) {
      const { x, y, width, height } = at.get(node), open = this.isOpen(node);
      const parent = node.parent === plan.root ? undefined : `n${node.parent.id}`;
      const label = open ? `▾ ${fitted(plan.shortLabel(node), 44)}` : texts.get(node);
      const data = { id: `n${node.id}`, node: node.id, parent, label, width, height };
      elements.push({ group: "nodes", data, position: { x, y }, classes: open ? "open" : node.op < 0 ? "closed" : "op" });
    }
    const boxes = drawn.map((node) => at.get(node));
    for (const flow of flows) flow.bow = flow.repeats ? 0 : bowOf(at.get(plan.nodes[flow.from]), at.get(plan.nodes[flow.to]), boxes);
    for (const flow of flows) flow.label = flow.crosses && flow.crossing ? `${formatBytes(flow.crossing)}, ${formatNs(flow.time)}` : "";
    const offsets = labelsPlaced(flows.filter(({ label }) => label), plan.nodes, at, drawn, scopes);
    for (const flow of flows) {
      const kind = flow.crosses ? (flow.crossing ? "crosses" : "crosses waits") : flow.shares ? "shares" : flow.nbytes ? "stays" : "waits";
      const weight = flow.crossing ? Math.min(7, 2.5 + Math.log2(1 + flow.crossing / 65536) / 3) : 1.3;
      const data = { ...flow, id: `e${flow.from}-${flow.to}`, source: `n${flow.from}`, target: `n${flow.to}`, weight, offset: offsets.get(flow) ?? 0 };
      elements.push({ group: "edges", data, classes: kind + (flow.repeats ? " repeats" : "") + (flow.bow ? " bowed" : "") });
    }
    this.cy.batch(() => {
      this.cy.elements().remove();
      this.cy.add(elements);
    });
    this.paint();
    this.markSelected();
  }

  #label(node) {
    const { plan } = this, time = plan.nodeTime(node);
    const what = node.op < 0 ? `${node.ops} ops` : plan.text(plan.ops.type[node.op]);
    const more = (time ? `, ${formatNs(time)}` : "") + (node.crossings ? `, ⇄${node.crossings}` : "");
    return `${node.op < 0 ? "▸ " : ""}${fitted(plan.shortLabel(node), 32)}\n${fitted(what, 26)}${more}`;
  }

  /** Applies the colours of the theme. A box with ops on several devices is striped in proportion to their number. */
  paint() {
    const { plan, cy } = this;
    const css = getComputedStyle(document.documentElement), colour = (name) => css.getPropertyValue(name).trim();
    const stripes = (target) => {
      const node = plan.nodes[target.data("node")], stops = [], places = [];
      let from = 0;
      node.held.forEach((held, device) => {
        if (!held) return;
        const to = from + Math.max(8, (100 * held) / node.ops);
        stops.push(plan.paintOf(device)[0], plan.paintOf(device)[0]);
        places.push(`${Math.min(100, from)}%`, `${Math.min(100, to)}%`);
        from = to;
      });
      return { stops: stops.join(" "), places: places.join(" ") };
    };
    const main = (target) => {
      const { held } = plan.nodes[target.data("node")];
      return held.indexOf(Math.max(...held));
    };
    const [ink, panel, crossing, quiet] = ["--ink", "--panel", "--crossing", "--quiet"].map(colour);
    cy.style([
      {
        selector: "node",
        style: {
          shape: "round-rectangle", width: "data(width)", height: "data(height)", label: "data(label)", color: ink, "font-size": 12,
          "font-family": "system-ui, Segoe UI, Helvetica Neue, Arial, sans-serif", "text-wrap": "wrap", "text-valign": "center",
          "line-height": 1.25, "border-width": 1.5, "min-zoomed-font-size": 5,
        },
      },
      {
        selector: ".op, .closed",
        style: {
          "background-fill": "linear-gradient", "background-gradient-direction": "to-right",
          "background-gradient-stop-colors": (n) => stripes(n).stops, "background-gradient-stop-positions": (n) => stripes(n).places,
          "border-color": (n) => plan.paintOf(main(n))[1],
        },
      },
      { selector: ".closed", style: { "border-width": 2.5, "border-style": "double" } },
      {
        selector: ".open",
        style: {
          "background-color": ink, "background-opacity": 0.025, "border-color": quiet, "border-width": 1, "text-valign": "top",
          "text-halign": "center", "text-margin-y": 24, "font-size": 13, padding: PAD, "font-weight": 600,
          "compound-sizing-wrt-labels": "exclude", "min-width": 60,
        },
      },
      {
        selector: "edge",
        style: {
          width: "data(weight)", "curve-style": "bezier", "target-arrow-shape": "triangle", "arrow-scale": 0.9,
          "line-color": quiet, "target-arrow-color": quiet, "z-index": 1,
        },
      },
      {
        selector: ".bowed",
        style: {
          "curve-style": "unbundled-bezier", "control-point-distances": "data(bow)", "control-point-weights": 0.5,
          "edge-distances": "node-position",
        },
      },
      { selector: ".waits", style: { "line-style": "dotted", "line-opacity": 0.7 } },
      { selector: ".repeats", style: { display: "none" } },
      { selector: ".shares", style: { "line-color": crossing, "target-arrow-color": crossing, "line-style": "dashed" } },
      {
        selector: ".crosses",
        style: {
          "line-color": crossing, "target-arrow-color": crossing, "source-label": "data(label)", "source-text-offset": "data(offset)", color: crossing, "font-size": 11,
          "text-background-color": panel, "text-background-opacity": 0.92, "text-background-padding": 2, "z-index": 5,
          "text-border-color": crossing, "text-border-width": 0.6, "text-border-opacity": 1,
        },
      },
      { selector: ".near", style: { display: "element", width: 3, "line-color": ink, "target-arrow-color": ink, "z-index": 4 } },
      { selector: ".near.crosses, .near.shares", style: { "line-color": crossing, "target-arrow-color": crossing, width: 4 } },
      { selector: ".selected", style: { "border-color": colour("--accent"), "border-width": 4, "border-style": "solid" } },
      { selector: "core", style: { "active-bg-size": 0 } },
    ]);
  }

  markSelected() {
    this.cy.elements().removeClass("selected near");
    if (this.app.flowing) this.cy.getElementById(this.app.flowing).addClass("near");
    const node = this.app.selected && this.nearest(this.app.selected);
    if (!node) return;
    const shown = this.cy.getElementById(`n${node.id}`);
    shown.addClass("selected");
    shown.connectedEdges().addClass("near");
  }

  /** The drawn node for a node: itself, or the outermost closed scope around it. */
  nearest(node) {
    let found = node;
    for (let above = node.parent; above; above = above.parent) if (!this.isOpen(above)) found = above;
    return found;
  }

  show(node) {
    const shown = this.cy.getElementById(`n${this.nearest(node).id}`);
    if (!shown.length) return;
    const target = shown.isParent() ? { fit: { eles: shown, padding: 40 } } : { center: { eles: shown }, zoom: Math.max(0.9, Math.min(1.4, this.cy.zoom())) };
    this.cy.stop();
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      if (target.fit) this.cy.fit(shown, 40);
      else this.cy.zoom(target.zoom).center(shown);
    } else this.cy.animate(target, { duration: 250 });
  }

  fit() {
    this.cy.resize();
    this.cy.fit(undefined, MARGIN);
    if (this.cy.zoom() > 1.2) this.cy.zoom(1.2).center();
  }

  zoom(factor) {
    const { width, height } = byId("canvas").getBoundingClientRect();
    this.cy.zoom({ level: this.cy.zoom() * factor, renderedPosition: { x: width / 2, y: height / 2 } });
  }

  legend() {
    const { plan } = this, line = (colour, width, dash) => {
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), path = document.createElementNS(svg.namespaceURI, "path");
      svg.setAttribute("width", 26);
      svg.setAttribute("height", 8);
      path.setAttribute("d", "M0 4H26");
      path.setAttribute("style", `stroke:${colour};stroke-width:${width};stroke-dasharray:${dash}`);
      svg.append(path);
      return svg;
    };
    byId("legend").replaceChildren(
      ...plan.devices.map((device, k) => el("li", {}, swatch(plan, k), device.name)),
      el("li", {}, line("var(--crossing)", 4, "none"), "copied to another device"),
      el("li", {}, line("var(--crossing)", 1.5, "4 3"), "uses an existing copy"),
      el("li", {}, line("var(--soft)", 1.5, "none"), "stays on its device"),
      el("li", {}, line("var(--soft)", 1.5, "1.5 3"), line("var(--crossing)", 1.5, "1.5 3"), "control edge: order only, 0 B"),
      el("li", {}, el("span", { class: "crosses" }, "⇄"), " crossings inside"),
      el("li", { class: "soft" }, "double-click opens ▸ and closes ▾"),
    );
  }
}

function swatch(plan, device) {
  const [fill, line] = plan.paintOf(device);
  return el("span", { class: "swatch", "data-device": device, style: { background: fill, borderColor: line } });
}
