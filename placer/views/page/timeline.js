// The predicted step over time: a track for each stream, thread and link, and the memory of each device.

const LANE = 18, SLIM = 7, GUTTER = 130, CURVE = 84, AXIS = 22;

const sizeOf = (transfer) => (transfer.output < 0 ? "control edge" : formatBytes(transfer.nbytes));

class Timeline {
  constructor(plan, app) {
    this.plan = plan;
    this.app = app;
    this.tracks = this.#tracks();
    const last = plan.ops.start.reduce((end, start, op) => Math.max(end, start + plan.ops.length[op]), 1);
    this.end = plan.transfers.reduce((end, t) => Math.max(end, t.end), last);
    [this.left, this.right] = [0, this.end];
    this.canvas = el("canvas", {
      tabindex: "0", role: "img",
      "aria-label": `Predicted timeline of ${formatNs(this.end)} with ${this.tracks.length} tracks. Arrow keys move, plus and minus zoom, 0 shows all. The tables of ops and transfers have the same content as text.`,
    });
    this.scroll = el("div", { class: "scroll" }, this.canvas);
    this.tip = el("div", { class: "tip", hidden: true });
    byId("timeline").append(
      el("div", { class: "filters" },
        el("button", { type: "button", onclick: () => this.zoom(1 / 1.6) }, "+"), el("button", { type: "button", onclick: () => this.zoom(1.6) }, "−"),
        el("button", { type: "button", onclick: () => this.all() }, "All"),
        el("span", { class: "soft" }, "predicted by the execution model. Drag to move, use the wheel with Ctrl to zoom, click an op for its details.")),
      this.scroll, this.tip);
    this.#listen();
    new ResizeObserver(() => this.draw()).observe(byId("timeline"));
  }

  /** Tracks: {title, device, spans: [start, end, op or transfer]} and {title, device, curve}. */
  #tracks() {
    const { plan } = this, tracks = [];
    const lanes = (spans, title, device, kind) => {
      spans.sort((a, b) => a[0] - b[0]);
      const ends = [], byLane = [];
      for (const span of spans) {
        let lane = ends.findIndex((end) => end <= span[0]);
        if (lane < 0) lane = ends.push(0) - 1;
        ends[lane] = span[1];
        (byLane[lane] ??= []).push(span);
      }
      byLane.forEach((inside, k) => tracks.push({ title: k ? "" : title, device, spans: inside, kind, height: LANE }));
      return byLane.length;
    };
    plan.devices.forEach((device, k) => {
      const streamed = [], threads = [];
      for (let op = 0; op < plan.count; op++) {
        if (plan.ops.device[op] !== k || !plan.ops.length[op]) continue;
        (plan.ops.streamed[op] ? streamed : threads).push([plan.ops.start[op], plan.ops.start[op] + plan.ops.length[op], op]);
      }
      if (streamed.length) lanes(streamed, `${device.name} stream`, k, "op");
      if (threads.length) lanes(threads, `${device.name} ${streamed.length ? "host thread" : "threads"}`, k, "op");
    });
    const links = new Map();
    for (const t of plan.transfers) {
      if (t.end <= t.start) continue;
      const key = `${plan.devices[t.src].name} → ${t.src === t.dst ? "its host" : plan.devices[t.dst].name}`;
      if (!links.has(key)) links.set(key, []);
      links.get(key).push([t.start, t.end, t]);
    }
    plan.devices.forEach((device, k) => tracks.push({ title: `${device.name} memory`, device: k, curve: device.memory, height: CURVE }));
    const most = Math.max(0, ...[...links].map(([title, spans]) => lanes(spans, title, -1, "transfer")));
    if (most > 3) for (const track of tracks) if (track.kind === "transfer") track.height = SLIM;  // copies overlap while only their latency passes
    return tracks;
  }

  #listen() {
    const { canvas } = this;
    let grabbed = null, moved = false;
    canvas.addEventListener("pointerdown", (event) => {
      grabbed = { x: event.clientX, left: this.left, right: this.right };
      moved = false;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (grabbed) {
        moved ||= Math.abs(event.clientX - grabbed.x) > 3;
        const shift = ((grabbed.x - event.clientX) / this.width) * (grabbed.right - grabbed.left);
        this.#look(grabbed.left + shift, grabbed.right + shift);
        return;
      }
      const hit = this.#at(event);
      this.tip.hidden = !hit;
      if (hit) {
        this.tip.textContent = hit.text;
        this.tip.style.left = `${Math.min(event.clientX + 14, innerWidth - 440)}px`;
        this.tip.style.top = `${Math.min(event.clientY + 14, innerHeight - 60)}px`;
      }
    });
    canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    canvas.addEventListener("pointerup", (event) => {
      grabbed = null;
      const hit = moved ? null : this.#at(event);
      if (hit?.op !== undefined) this.app.selectOp(hit.op);
    });
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoom(Math.exp(event.deltaY / 300), (event.offsetX - GUTTER) / this.width);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const span = this.right - this.left;
      const keys = {
        ArrowLeft: () => this.#look(this.left - span / 8, this.right - span / 8), ArrowRight: () => this.#look(this.left + span / 8, this.right + span / 8),
        "+": () => this.zoom(1 / 1.6), "=": () => this.zoom(1 / 1.6), "-": () => this.zoom(1.6), 0: () => this.all(),
      };
      if (!keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
  }

  all() {
    this.#look(0, this.end);
  }

  zoom(factor, at = 0.5) {
    const span = Math.min(this.end, Math.max(20, (this.right - this.left) * factor)), centre = this.left + at * (this.right - this.left);
    this.#look(centre - at * span, centre - at * span + span);
  }

  #look(left, right) {
    const span = right - left, from = Math.max(0, Math.min(left, this.end - span));
    [this.left, this.right] = [from, from + span];
    this.draw();
  }

  /** Moves to the slice of an op. */
  show(op) {
    const { start, length } = this.plan.ops;
    if (!length[op] || (start[op] + length[op] > this.left && start[op] < this.right)) return this.draw();
    const span = this.right - this.left;
    return this.#look(start[op] - span / 2, start[op] + span / 2);
  }

  #tops() {
    let top = AXIS;
    return this.tracks.map((track, k) => {
      const before = this.tracks[k - 1];
      if (before && (before.device !== track.device || track.curve || (track.title && track.height !== LANE))) top += 6;
      const at = top;
      top += track.height;
      return at;
    });
  }

  draw() {
    const { plan, canvas, tracks } = this, box = this.scroll.getBoundingClientRect();
    if (!box.width) return;
    const tops = this.#tops(), height = Math.max(box.height - 4, tops.at(-1) + tracks.at(-1).height + 8), ratio = devicePixelRatio || 1;
    this.width = this.scroll.clientWidth - GUTTER - 12;
    canvas.width = this.scroll.clientWidth * ratio;
    canvas.height = height * ratio;
    canvas.style.width = `${this.scroll.clientWidth}px`;
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d"), css = getComputedStyle(document.documentElement), colour = (name) => css.getPropertyValue(name).trim();
    const [ink, soft, wash, rule, crossing, accent] = ["--ink", "--soft", "--wash", "--line", "--crossing", "--accent"].map(colour);
    pen.scale(ratio, ratio);
    pen.font = "12px system-ui, Segoe UI, Helvetica Neue, Arial, sans-serif";
    pen.textBaseline = "middle";
    const x = (time) => GUTTER + ((time - this.left) / (this.right - this.left)) * this.width;
    this.#axis(pen, x, height, soft, rule);
    const chosen = this.app.selected?.op ?? -1;
    tracks.forEach((track, k) => {
      const top = tops[k];
      pen.fillStyle = ink;
      if (track.title) pen.fillText(track.title, 8, top + LANE / 2);
      pen.save();
      pen.beginPath();
      pen.rect(GUTTER, top, this.width, track.height);
      pen.clip();
      if (track.curve) this.#curve(pen, x, track, top, { soft, wash, crossing });
      else {
        const [fill, line] = track.device < 0 ? [crossing, crossing] : plan.paintOf(track.device);
        let covered = -1;
        for (let i = this.#firstIn(track.spans); i < track.spans.length && track.spans[i][0] < this.right; i++) {
          const [start, end, what] = track.spans[i], from = x(start), to = Math.max(x(end), from + 1);
          if (to <= covered) continue;
          covered = to;
          const wide = to - from > 3;
          pen.fillStyle = what === chosen && track.kind === "op" ? accent : wide && track.device >= 0 ? fill : line;
          pen.fillRect(from, top + 1, Math.max(to - from - (wide ? 0.5 : 0), 1), track.height - (track.height === LANE ? 3 : 2));
          if (wide && track.device >= 0) {
            pen.strokeStyle = line;
            pen.strokeRect(from + 0.5, top + 1.5, to - from - 1, LANE - 4);
          }
          if (to - from > 44 && track.height === LANE) {
            pen.fillStyle = track.device < 0 || what === chosen ? colour("--panel") : ink;
            const seen = Math.max(from, GUTTER), text = track.kind === "op" ? plan.text(plan.ops.type[what]) : sizeOf(what);
            const room = Math.floor((Math.min(to, GUTTER + this.width) - seen - 8) / 6.6);
            if (room > 2) pen.fillText(text.length > room ? `${text.slice(0, room - 1)}…` : text, seen + 4, top + LANE / 2);
          }
        }
      }
      pen.restore();
    });
  }

  #axis(pen, x, height, soft, rule) {
    const raw = (this.right - this.left) / 7, power = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].find((s) => s * power >= raw) * power;
    pen.strokeStyle = rule;
    pen.fillStyle = soft;
    for (let time = Math.ceil(this.left / step) * step; time <= this.right; time += step) {
      const at = Math.round(x(time)) + 0.5;
      pen.beginPath();
      pen.moveTo(at, AXIS - 4);
      pen.lineTo(at, height);
      pen.stroke();
      const text = formatNs(time), width = pen.measureText(text).width;
      pen.fillText(text, Math.min(at - width / 2, GUTTER + this.width - width + 8), 9);
    }
  }

  #curve(pen, x, track, top, { soft, wash, crossing }) {
    const { plan } = this, device = plan.devices[track.device], [fill, line] = plan.paintOf(track.device), { curve } = track;
    const limit = device.limit_bytes, near = limit > 0 && limit < 3 * device.peak_bytes, most = Math.max(1, near ? limit : device.peak_bytes) * 1.12;
    const y = (held) => top + CURVE - 4 - (held / most) * (CURVE - 22);
    pen.fillStyle = wash;
    pen.fillRect(GUTTER, top, this.width, CURVE - 2);
    pen.beginPath();
    pen.moveTo(x(0), y(0));
    let held = 0, last = -Infinity;
    for (let i = 0; i < curve.length; i += 2) {
      const at = x(curve[i]);
      if (at < GUTTER - 2000) { held = curve[i + 1]; continue; }
      if (at - last < 0.5 && curve[i + 1] < held) continue;
      pen.lineTo(at, y(held));
      held = curve[i + 1];
      pen.lineTo(at, y(held));
      last = at;
      if (at > GUTTER + this.width + 2000) break;
    }
    pen.lineTo(x(this.end), y(held));
    pen.lineTo(x(this.end), y(0));
    pen.fillStyle = fill;
    pen.fill();
    pen.strokeStyle = line;
    pen.stroke();
    if (near) {
      pen.strokeStyle = crossing;
      pen.setLineDash([6, 4]);
      pen.beginPath();
      pen.moveTo(GUTTER, y(limit));
      pen.lineTo(GUTTER + this.width, y(limit));
      pen.stroke();
      pen.setLineDash([]);
    }
    pen.fillStyle = soft;
    const words = limit < 0 ? "no limit" : `limit ${formatBytes(limit)}${near ? "" : `, ${device.peak_bytes < limit / 1000 ? "under 0.1" : ((100 * device.peak_bytes) / limit).toPrecision(2)}% of it`}`;
    pen.fillText(`peak ${formatBytes(device.peak_bytes)}, ${words}`, GUTTER + 8, top + 10);
  }

  /** The first span of a track that ends within the visible range. Spans are in order, so bisection finds it. */
  #firstIn(spans) {
    let [low, high] = [0, spans.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (spans[middle][1] < this.left) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #at(event) {
    const { plan } = this, tops = this.#tops(), y = event.offsetY;
    const k = this.tracks.findIndex((track, i) => y >= tops[i] && y < tops[i] + track.height);
    if (k < 0 || event.offsetX < GUTTER) return null;
    const track = this.tracks[k], time = this.left + ((event.offsetX - GUTTER) / this.width) * (this.right - this.left);
    if (track.curve) {
      let held = 0;
      for (let i = 0; i < track.curve.length && track.curve[i] <= time; i += 2) held = track.curve[i + 1];
      return { text: `${formatBytes(held)} held on ${plan.devices[track.device].name} at ${formatNs(time)}` };
    }
    const slack = (this.right - this.left) / this.width, i = this.#firstIn(track.spans), span = track.spans.slice(Math.max(0, i - 1)).find(([, end]) => end + slack >= time);
    if (!span || span[0] > time + slack) return null;
    const [start, end, what] = span, when = `${formatNs(end - start)} from ${formatNs(start)}`;
    if (track.kind === "op") return { op: what, text: `${plan.ops.name[what]} (${plan.text(plan.ops.type[what])}): ${when}` };
    return { op: what.op, text: `${plan.tensorName(what.op, what.output)}, ${sizeOf(what)}: ${when}` };
  }
}
