// Where boxes stand: each open scope is laid out by itself, innermost first, and is one box in the scope around it.

const PAD = 34, WIDEST = 7;

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
    graph.setGraph({ rankdir: "TB", nodesep: 26, ranksep: 46, ranker: scope.children.length > 40 ? "tight-tree" : "network-simplex" });
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

/** Ranks of more than `WIDEST` boxes are broken into rows, so that what is side by side can be read. */
function wrapped(children, at, sizes) {
  const ranks = new Map();
  for (const child of children) {
    const y = Math.round(at.get(child).y);
    if (!ranks.has(y)) ranks.set(y, []);
    ranks.get(y).push(child);
  }
  if (Math.max(...[...ranks.values()].map((rank) => rank.length)) <= WIDEST) return;
  let top = 0;
  for (const y of [...ranks.keys()].sort((a, b) => a - b)) {
    const rank = ranks.get(y).sort((a, b) => at.get(a).x - at.get(b).x);
    const rows = Math.ceil(rank.length / WIDEST), size = Math.ceil(rank.length / rows);
    for (let k = 0; k < rank.length; k += size) {
      const row = rank.slice(k, k + size);
      const width = row.reduce((sum, child) => sum + sizes.get(child).width + 26, -26);
      const height = Math.max(...row.map((child) => sizes.get(child).height));
      let x = -width / 2;
      for (const child of row) {
        at.set(child, { x: x + sizes.get(child).width / 2, y: top + height / 2 });
        x += sizes.get(child).width + 26;
      }
      top += height + (k + size < rank.length ? 14 : 46);
    }
  }
}

/**
 * How far along its arrow each flow's label stands: as near the middle as can be where it covers no box, no scope's name and no
 * other label, else where it covers least.
 */
function labelsPlaced(flows, nodes, at, drawn, scopes) {
  const taken = drawn.map((node) => at.get(node));
  for (const scope of scopes) {
    const { x, y, width, height } = at.get(scope);
    taken.push({ x, y: y - height / 2 + 16, width: Math.min(width, 8 * fitted(scope.label, 44).length + 24), height: 22 });
  }
  const common = (a, b) => {
    const wide = (a.width + b.width) / 2 - Math.abs(a.x - b.x), high = (a.height + b.height) / 2 - Math.abs(a.y - b.y);
    return wide > 0 && high > 0 ? wide * high : 0;
  };
  const offsets = new Map();
  for (const flow of flows) {
    const from = at.get(nodes[flow.from]), to = at.get(nodes[flow.to]), [dx, dy] = [to.x - from.x, to.y - from.y];
    const edge = (box) => Math.min(box.width / 2 / Math.abs(dx), box.height / 2 / Math.abs(dy));  // share of the way that it covers
    const [start, end] = [edge(from), 1 - edge(to)], size = { width: 6.4 * flow.label.length + 8, height: 18 };
    let best = null;
    for (let k = 0; k < 17 && best?.covered !== 0; k++) {
      const share = 0.5 + (k % 2 ? -1 : 1) * Math.ceil(k / 2) * 0.05, along = start + share * (end - start);
      const place = { x: from.x + along * dx, y: from.y + along * dy, ...size };
      const covered = taken.reduce((sum, other) => sum + common(place, other), 0);
      if (!best || covered < best.covered) best = { covered, place, offset: share * (end - start) * Math.hypot(dx, dy) };
    }
    taken.push(best.place);
    offsets.set(flow, best.offset);
  }
  return offsets;
}
