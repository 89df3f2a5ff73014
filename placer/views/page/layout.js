// The positions of boxes. Each open scope is laid out alone, innermost first, and is then one box in the scope around it.

const PAD = 30, MAX_PER_ROW = 7, CURVE_STEPS = 40, BOWS = [0, 90, -90, 180, -180, 300, -300, 450, -450, 600, -600, 800, -800];

/**
 * Centres and sizes of everything visible, by node.
 *
 * `boxes` has a size for each closed node; `links` are pairs of siblings' nodes, by the scope that holds both.
 */
function arranged(root, isOpen, sizeOf, links) {
  const placed = new Map();
  const inner = (scope) => {
    if (!scope.children.length) return { width: 0, height: 0 };
    const graph = new dagre.graphlib.Graph();
    graph.setGraph({ rankdir: "TB", nodesep: 26, ranksep: 32, ranker: scope.children.length > 40 ? "tight-tree" : "network-simplex" });
    graph.setDefaultEdgeLabel(() => ({}));
    const sizes = new Map();
    for (const child of scope.children) {
      const size = isOpen(child) ? inner(child) : sizeOf(child);
      sizes.set(child, size);
      graph.setNode(String(child.id), { width: size.width, height: size.height });
    }
    for (const [from, to] of links.get(scope) ?? []) graph.setEdge(String(from.id), String(to.id));
    dagre.layout(graph);
    const at = new Map(scope.children.map((child) => [child, graph.node(String(child.id))]));
    wrapped(scope.children, at, sizes);
    let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
    for (const child of scope.children) {
      const { x, y } = at.get(child), { width, height } = sizes.get(child);
      [left, top] = [Math.min(left, x - width / 2), Math.min(top, y - height / 2)];
      [right, bottom] = [Math.max(right, x + width / 2), Math.max(bottom, y + height / 2)];
    }
    for (const child of scope.children) {
      const { x, y } = at.get(child);
      placed.set(child, { dx: x - (left + right) / 2, dy: y - (top + bottom) / 2, ...sizes.get(child) });
    }
    return { width: right - left + 2 * PAD, height: bottom - top + 2 * PAD };
  };
  inner(root);
  const centres = new Map();
  const outer = (scope, x, y) => {
    for (const child of scope.children) {
      const { dx, dy, width, height } = placed.get(child);
      centres.set(child, { x: x + dx, y: y + dy, width, height });
      if (isOpen(child)) outer(child, x + dx, y + dy);
    }
  };
  outer(root, 0, 0);
  return centres;
}

/** Breaks ranks of more than `MAX_PER_ROW` boxes into rows, so that boxes side by side can be read. */
function wrapped(children, at, sizes) {
  const ranks = new Map();
  for (const child of children) {
    const y = Math.round(at.get(child).y);
    if (!ranks.has(y)) ranks.set(y, []);
    ranks.get(y).push(child);
  }
  if (Math.max(...[...ranks.values()].map((rank) => rank.length)) <= MAX_PER_ROW) return;
  let top = 0;
  for (const y of [...ranks.keys()].sort((a, b) => a - b)) {
    const rank = ranks.get(y).sort((a, b) => at.get(a).x - at.get(b).x);
    const rows = Math.ceil(rank.length / MAX_PER_ROW), size = Math.ceil(rank.length / rows);
    for (let k = 0; k < rank.length; k += size) {
      const row = rank.slice(k, k + size);
      const width = row.reduce((sum, child) => sum + sizes.get(child).width + 26, -26);
      const height = Math.max(...row.map((child) => sizes.get(child).height));
      let x = -width / 2;
      for (const child of row) {
        at.set(child, { x: x + sizes.get(child).width / 2, y: top + height / 2 });
        x += sizes.get(child).width + 26;
      }
      top += height + (k + size < rank.length ? 14 : 32);
    }
  }
}

const within = (point, box, margin = 0) =>
  Math.abs(point.x - box.x) < box.width / 2 + margin && Math.abs(point.y - box.y) < box.height / 2 + margin;

/** Points from the edge of one box to the edge of another: a line, or a curve that bows to a side by half of `bow`. */
function way(from, to, bow) {
  const [dx, dy] = [to.x - from.x, to.y - from.y], length = Math.hypot(dx, dy) || 1;
  const over = { x: (from.x + to.x) / 2 - (bow * dy) / length, y: (from.y + to.y) / 2 + (bow * dx) / length };
  const edge = (box) => {
    const [x, y] = [over.x - box.x, over.y - box.y], share = Math.min(box.width / 2 / Math.abs(x), box.height / 2 / Math.abs(y));
    return { x: box.x + share * x, y: box.y + share * y };
  };
  const [start, end] = [edge(from), edge(to)];
  return Array.from({ length: CURVE_STEPS + 1 }, (_, k) => {
    const t = k / CURVE_STEPS, s = 1 - t, at = (axis) => s * s * start[axis] + 2 * s * t * over[axis] + t * t * end[axis];
    return { x: at("x"), y: at("y") };
  });
}

/** The bow with which an arrow passes the fewest other boxes: 0 if the straight line passes none. */
function bowOf(from, to, boxes) {
  const others = boxes.filter((box) => box !== from && box !== to);
  let best = { hits: Infinity, bow: 0 };
  for (const bow of BOWS) {
    const hits = way(from, to, bow).filter((point) => others.some((box) => within(point, box, 4))).length;
    if (hits < best.hits) best = { hits, bow };
    if (!hits) break;
  }
  return best.bow;
}

/**
 * The distance of each flow's label along its arrow: the point nearest to the middle where it covers no box, no name of a scope
 * and no other label, or else the point where it covers least.
 */
function labelsPlaced(flows, nodes, at, drawn, scopes) {
  const taken = drawn.map((node) => at.get(node));
  for (const scope of scopes) {
    const { x, y, width, height } = at.get(scope);
    taken.push({ x, y: y - height / 2 + 16, width: Math.min(width, 8 * fitted(scope.label, 44).length + 24), height: 22 });
  }
  const overlap = (a, b) => {
    const wide = (a.width + b.width) / 2 - Math.abs(a.x - b.x), high = (a.height + b.height) / 2 - Math.abs(a.y - b.y);
    return wide > 0 && high > 0 ? wide * high : 0;
  };
  const offsets = new Map();
  for (const flow of flows) {
    const points = way(at.get(nodes[flow.from]), at.get(nodes[flow.to]), flow.bow);
    const size = { width: 6.4 * flow.label.length + 8, height: 18 };
    let best = null, offset = 0;
    for (let k = 0; k <= CURVE_STEPS && best?.covered !== 0; k++) {
      const at = CURVE_STEPS / 2 + (k % 2 ? -1 : 1) * ((k + 1) >> 1), place = { ...points[at], ...size };
      const covered = taken.reduce((sum, other) => sum + overlap(place, other), 0);
      if (!best || covered < best.covered) best = { covered, place, at };
    }
    taken.push(best.place);
    for (let k = 1; k <= best.at; k++) offset += Math.hypot(points[k].x - points[k - 1].x, points[k].y - points[k - 1].y);
    offsets.set(flow, offset);
  }
  return offsets;
}
