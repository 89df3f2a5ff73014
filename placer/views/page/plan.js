// The plan: ops by number, the tensors between them, and the tree of scopes over them.

const STAYS = 0, CROSSES = 1;  // kinds of edges; the third, 2, uses a copy made for an earlier reader
const WAITING = "no data, but the op at the other end waits for the signal that this one has run";

async function unpacked(id) {
  const packed = Uint8Array.from(atob(byId(id).textContent.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

class Plan {
  constructor(data) {
    Object.assign(this, data);
    this.count = this.ops.name.length;
    this.ownTime = this.ops.time.map((times, op) => Math.max(0, times[this.ops.device[op]]));
    this.#readEdges();
    this.#readTransfers();
    this.#readTree();
  }

  text(number) {
    return this.strings[number];
  }

  /** The colour pair [fill, line] of a device. */
  paintOf(device) {
    return this.devices[device][document.documentElement.dataset.theme === "dark" ? "night" : "day"];
  }

  /** Edge after edge: `from`, `to`, `output`, `kind`; the edges out of op i are outStart[i] to outStart[i + 1]. */
  #readEdges() {
    const flat = this.edges, n = flat.length / 4;
    this.from = new Int32Array(n);
    this.to = new Int32Array(n);
    this.output = new Int32Array(n);
    this.kind = new Uint8Array(n);
    this.outStart = new Int32Array(this.count + 1);
    this.incoming = Array.from({ length: this.count }, () => []);
    for (let e = 0; e < n; e++) {
      this.from[e] = flat[4 * e];
      this.to[e] = flat[4 * e + 1];
      this.output[e] = flat[4 * e + 2];
      this.kind[e] = flat[4 * e + 3];
      this.outStart[this.from[e] + 1]++;
      this.incoming[this.to[e]].push(e);
    }
    for (let op = 0; op < this.count; op++) this.outStart[op + 1] += this.outStart[op];
    delete this.edges;
  }

  #readTransfers() {
    const names = ["op", "output", "src", "dst", "host", "nbytes", "count", "time", "start", "end"];
    this.transfers = this.transfers.map((row) => Object.fromEntries(names.map((name, k) => [name, row[k]])));
    this.transfersOf = new Map();
    for (const transfer of this.transfers) {
      if (!this.transfersOf.has(transfer.op)) this.transfersOf.set(transfer.op, []);
      this.transfersOf.get(transfer.op).push(transfer);
    }
  }

  /** The transfers of an op's output to a device. */
  copies(op, output, device) {
    return (this.transfersOf.get(op) ?? []).filter((t) => t.output === output && t.dst === device);
  }

  tensorName(op, output) {
    return output < 0 ? `^${this.ops.name[op]}` : `${this.ops.name[op]}:${output}`;
  }

  bytesOf(op, output) {
    return output < 0 ? 0 : this.outputs[this.ops.outputs[op][output]][1];
  }

  membersOf(unit) {
    if (!this.members) {
      this.members = new Map();
      this.ops.unit.forEach((number, op) => {
        if (!this.members.has(number)) this.members.set(number, []);
        this.members.get(number).push(op);
      });
    }
    return this.members.get(unit);
  }

  /** The nodes of the tree. `leafOf[op]` is the node of an op, -1 if it is not drawn (constants, handles of variables). */
  #readTree() {
    this.nodes = [];
    this.leafOf = new Int32Array(this.count).fill(-1);
    const add = (part, parent) => {
      const node = { id: this.nodes.length, parent, children: [], op: -1, label: "", ops: 0, crossings: 0 };
      node.depth = parent ? parent.depth + 1 : 0;
      node.time = new Float64Array(this.devices.length);
      node.held = new Uint32Array(this.devices.length);
      this.nodes.push(node);
      if (typeof part === "number") {
        node.op = part;
        node.label = this.ops.name[part];
        this.leafOf[part] = node.id;
        for (let above = node; above; above = above.parent) {
          above.ops++;
          above.held[this.ops.device[part]]++;
          above.time[this.ops.device[part]] += this.ownTime[part];
        }
      } else {
        node.label = part[0];
        for (const inner of part.slice(1)) node.children.push(add(inner, node));
      }
      return node;
    };
    this.root = add(this.tree, null);
    delete this.tree;
    for (let e = 0; e < this.from.length; e++) {
      if (this.kind[e] !== CROSSES || this.leafOf[this.from[e]] < 0 || this.leafOf[this.to[e]] < 0) continue;
      let node = this.meeting(this.nodes[this.leafOf[this.from[e]]], this.nodes[this.leafOf[this.to[e]]]);
      for (; node; node = node.parent) node.crossings++;
    }
  }

  /** The innermost scope that holds both. */
  meeting(a, b) {
    while (a !== b) {
      if (a.depth >= b.depth) a = a.parent;
      else b = b.parent;
    }
    return a;
  }

  nodeTime(node) {
    return node.time.reduce((sum, time) => sum + time, 0);
  }

  /** The name of a node within its scope. */
  shortLabel(node) {
    if (node.op < 0) return node.label;
    let above = node.parent;
    const parts = node.label.split("/");
    let scopes = 0;
    for (; above && above.parent; above = above.parent) {
      const steps = above.label.split("/");
      scopes += steps.length - (/\*$| … /.test(steps.at(-1)) ? 1 : 0);  // a group of siblings is no part of their names
    }
    return parts.slice(Math.min(scopes, parts.length - 1)).join("/");
  }
}
