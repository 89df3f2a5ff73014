// Long tables, of which only the visible rows exist in the document.

const ROW = 26;

class LongTable {
  /** `columns`: {title, of(row), text(row), number, width}; `choose(row)` is called for the row that is selected. */
  constructor(place, label, columns, choose) {
    Object.assign(this, { columns, choose, rows: [], sorted: -1, down: false, active: -1 });
    const widths = columns.map((column) => column.width).join(" ");
    this.style = { gridTemplateColumns: widths };
    this.head = el("div", { class: "row head", role: "row", "aria-rowindex": 1, style: this.style }, columns.map((column, k) =>
      el("div", { role: "columnheader", class: column.number ? "number" : "" },
        el("button", { type: "button", onclick: () => this.sort(k) }, column.title))));
    this.body = el("div", { class: "body", role: "rowgroup" });
    this.box = el("div", { class: "rows", role: "table", "aria-label": label, tabindex: "0", onscroll: () => this.draw(), onkeydown: (e) => this.#key(e) },
      this.head, this.body);
    place.append(this.box);
    new ResizeObserver(() => this.draw()).observe(this.box);
  }

  fill(rows) {
    this.rows = [...rows];
    this.active = -1;
    if (this.sorted >= 0) this.#order();
    this.box.setAttribute("aria-rowcount", this.rows.length + 1);
    this.body.style.height = `${this.rows.length * ROW}px`;
    this.box.scrollTop = 0;
    this.draw();
  }

  sort(k) {
    this.down = this.sorted === k ? !this.down : !!this.columns[k].number;
    this.sorted = k;
    this.#order();
    [...this.head.children].forEach((cell, i) => {
      cell.setAttribute("aria-sort", i === k ? (this.down ? "descending" : "ascending") : "none");
      cell.firstChild.textContent = this.columns[i].title + (i === k ? (this.down ? " ↓" : " ↑") : "");
    });
    this.draw();
  }

  #order() {
    const { of } = this.columns[this.sorted], sign = this.down ? -1 : 1;
    const keyed = this.rows.map((row, k) => [of(row), k, row]);
    keyed.sort((a, b) => (a[0] < b[0] ? -sign : a[0] > b[0] ? sign : a[1] - b[1]));
    this.rows = keyed.map((entry) => entry[2]);
  }

  draw() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - 6), last = Math.min(this.rows.length, first + Math.ceil(this.box.clientHeight / ROW) + 12);
    const made = [];
    for (let k = first; k < last; k++) {
      const row = this.rows[k];
      made.push(el("div", {
        class: "row", role: "row", "aria-rowindex": k + 2, "aria-selected": String(k === this.active), style: { ...this.style, top: `${k * ROW}px` },
        onclick: () => { this.active = k; this.draw(); this.choose(row); },
      }, this.columns.map((column) => el("div", { role: "cell", class: column.number ? "number" : "" }, column.text(row)))));
    }
    this.body.replaceChildren(...made);
  }

  #key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15 }[event.key];
    if (event.target !== this.box || !(step || event.key === "Enter") || !this.rows.length) return;
    event.preventDefault();
    if (step) {
      this.active = Math.max(0, Math.min(this.rows.length - 1, this.active + step));
      const top = this.active * ROW;
      if (top < this.box.scrollTop) this.box.scrollTop = top;
      else if (top > this.box.scrollTop + this.box.clientHeight - 3 * ROW) this.box.scrollTop = top - this.box.clientHeight + 3 * ROW;
      this.draw();
    }
    this.choose(this.rows[this.active]);
  }
}

function opsTable(plan, app) {
  const { ops } = plan, place = byId("ops");
  place.classList.add("list");
  const device = el("select", { "aria-label": "Device" }, el("option", { value: "" }, "all devices"), plan.devices.map((d, k) => el("option", { value: k }, d.name)));
  const types = [...new Set(ops.type)].map((t) => plan.text(t)).sort();
  const type = el("select", { "aria-label": "Op type" }, el("option", { value: "" }, "all types"), types.map((t) => el("option", {}, t)));
  const scope = el("input", { type: "text", placeholder: "name contains", "aria-label": "Name contains" });
  const only = el("select", { "aria-label": "Only" }, ["all ops", "with crossings", "with flags", "on another device than TensorFlow's default"].map((t) => el("option", {}, t)));
  const total = el("span", { class: "soft", role: "status" });
  place.append(el("div", { class: "filters" }, device, type, scope, only, total));
  const crossing = new Set();
  for (let e = 0; e < plan.from.length; e++) if (plan.kind[e] !== STAYS) crossing.add(plan.from[e]).add(plan.to[e]);
  const size = (op) => ops.outputs[op].reduce((sum, k) => sum + plan.outputs[k][1], 0);
  const table = new LongTable(place, "Ops", [
    { title: "op", width: "minmax(140px, 4fr)", of: (op) => ops.name[op], text: (op) => ops.name[op] },
    { title: "time", width: "80px", number: true, of: (op) => plan.ownTime[op], text: (op) => formatNs(plan.ownTime[op]) },
    { title: "device", width: "90px", of: (op) => ops.device[op], text: (op) => el("span", {}, swatch(plan, ops.device[op]), plan.devices[ops.device[op]].name) },
    { title: "type", width: "minmax(100px, 1.3fr)", of: (op) => plan.text(ops.type[op]), text: (op) => plan.text(ops.type[op]) },
    { title: "outputs", width: "80px", number: true, of: size, text: (op) => formatBytes(size(op)) },
    { title: "why", width: "90px", of: (op) => plan.text(ops.reason[op]), text: (op) => plan.text(ops.reason[op]) },
  ], (op) => app.selectOp(op));
  const filter = () => {
    const wanted = scope.value.toLowerCase(), passing = [];
    for (let op = 0; op < plan.count; op++) {
      if (device.value !== "" && ops.device[op] !== Number(device.value)) continue;
      if (type.value !== "" && plan.text(ops.type[op]) !== type.value) continue;
      if (wanted && !ops.name[op].toLowerCase().includes(wanted)) continue;
      if (only.selectedIndex === 1 && !crossing.has(op)) continue;
      if (only.selectedIndex === 2 && !plan.text(ops.flags[op])) continue;
      if (only.selectedIndex === 3 && (ops.default[op] < 0 || ops.default[op] === ops.device[op])) continue;
      passing.push(op);
    }
    total.textContent = `${passing.length} of ${plan.count} ops, ${formatNs(passing.reduce((sum, op) => sum + plan.ownTime[op], 0))} together`;
    table.fill(passing);
  };
  for (const input of [device, type, scope, only]) input.addEventListener("input", filter);
  filter();
  table.sort(1);  // the op that takes longest comes first
  return table;
}

function transfersTable(plan, app) {
  const place = byId("transfers");
  place.classList.add("list");
  const bytes = plan.transfers.reduce((sum, t) => sum + t.nbytes * t.count, 0), time = plan.transfers.reduce((sum, t) => sum + t.time, 0);
  place.append(el("div", { class: "filters soft" }, plan.transfers.length
    ? `${plan.transfers.length} transfers, ${formatBytes(bytes)} and ${formatNs(time)} per step. A tensor is copied once per place, however many ops read it there.${plan.transfers.some((t) => t.output < 0) ? ` Those of control edges have 0 B: ${WAITING}.` : ""}`
    : "Nothing crosses between devices."));
  const name = (k) => plan.devices[k].name;
  const table = new LongTable(place, "Transfers", [
    { title: "tensor", width: "minmax(200px, 4fr)", of: (t) => plan.tensorName(t.op, t.output), text: (t) => plan.tensorName(t.op, t.output) },
    { title: "from", width: "70px", of: (t) => t.src, text: (t) => name(t.src) },
    { title: "to", width: "130px", of: (t) => t.dst, text: (t) => name(t.dst) + (t.host && name(t.dst).includes("GPU") ? " (host)" : "") },
    { title: "bytes", width: "80px", number: true, of: (t) => t.nbytes, text: (t) => (t.output < 0 ? "control" : formatBytes(t.nbytes)) },
    { title: "copies", width: "60px", number: true, of: (t) => t.count, text: (t) => String(t.count) },
    { title: "time", width: "80px", number: true, of: (t) => t.time, text: (t) => formatNs(t.time) },
    { title: "starts", width: "80px", number: true, of: (t) => t.start, text: (t) => formatNs(t.start) },
  ], (t) => app.selectOp(t.op));
  table.fill(plan.transfers);
  return table;
}
