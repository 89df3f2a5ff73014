// The page: the selection, which scopes are open, and the parts of the page that show them.

const MAX_MATCHES = 60, MAX_NOTES = 4;

class App {
  constructor(plan) {
    this.plan = plan;
    this.selected = plan.nodes[plan.leafOf[plan.decisive]] ?? null;
    this.flowing = null;
    this.outline = new Outline(plan, this);
    this.details = new Details(plan, this);
    this.graph = new GraphView(plan, this);
    this.graph.openAtFirst();
    if (this.selected) this.#describe();
    this.tabs = { "tab-timeline": () => new Timeline(plan, this), "tab-ops": () => opsTable(plan, this), "tab-transfers": () => transfersTable(plan, this) };
    this.made = {};
    this.#listenToTabs();
    this.#listenToSearch();
    byId("theme").onclick = () => this.theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  }

  theme(name) {
    document.documentElement.dataset.theme = name;
    byId("theme").textContent = name === "dark" ? "Light" : "Dark";
    overview(this.plan);
    this.graph.legend();
    this.graph.paint();
    this.outline.draw();
    for (const view of Object.values(this.made)) view.draw();
    if (this.selected) this.#describe();
  }

  opened() {
    this.graph.draw();
    this.outline.draw();
  }

  toggle(node) {
    if (node.op >= 0) return;
    this.graph.setOpen(node, !this.graph.isOpen(node));
    this.opened();
    this.graph.show(node);
    if (this.selected === node) this.#describe();
  }

  select(node) {
    [this.selected, this.flowing] = [node, null];
    this.graph.markSelected();
    this.outline.draw();
    this.outline.reveal(node);
    this.made["tab-timeline"]?.draw();
    this.#describe();
  }

  #describe() {
    if (this.selected.op >= 0) this.details.op(this.selected.op);
    else this.details.scope(this.selected);
  }

  selectOp(op) {
    const leaf = this.plan.leafOf[op];
    if (leaf < 0) {
      this.details.op(op);
      return;
    }
    this.select(this.plan.nodes[leaf]);
    if (!byId("graph").hidden) this.reveal(this.plan.nodes[leaf]);
    if (!byId("timeline").hidden) this.made["tab-timeline"]?.show(op);
  }

  selectFlow(flow) {
    [this.selected, this.flowing] = [null, flow.id];
    this.graph.markSelected();
    this.details.flow(flow);
  }

  /** Opens all scopes around a node and scrolls to it. */
  reveal(node) {
    this.tab("tab-graph");
    if (node.parent) this.graph.setOpen(node.parent, true);
    this.opened();
    this.graph.show(node);
    this.outline.reveal(node);
  }

  tab(id) {
    for (const tab of document.querySelectorAll("[role=tab]")) {
      const chosen = tab.id === id;
      tab.setAttribute("aria-selected", String(chosen));
      tab.setAttribute("tabindex", chosen ? "0" : "-1");
      byId(tab.getAttribute("aria-controls")).hidden = !chosen;
    }
    if (this.tabs[id] && !this.made[id]) this.made[id] = this.tabs[id]();
    this.made[id]?.draw();
    if (id === "tab-graph") this.graph.cy.resize();
  }

  #listenToTabs() {
    const tabs = [...document.querySelectorAll("[role=tab]")];
    tabs.forEach((tab, k) => {
      tab.addEventListener("click", () => this.tab(tab.id));
      tab.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        const next = tabs[(k + step + tabs.length) % tabs.length];
        this.tab(next.id);
        next.focus();
      });
    });
  }

  #listenToSearch() {
    const { plan } = this, box = byId("search"), list = byId("found");
    const lowered = plan.ops.name.map((name) => name.toLowerCase());
    const types = plan.ops.type.map((type) => plan.text(type).toLowerCase());
    let active = -1;
    const close = () => {
      list.hidden = true;
      box.setAttribute("aria-expanded", "false");
      box.removeAttribute("aria-activedescendant");
    };
    const mark = (k) => {
      const options = [...list.querySelectorAll("[role=option]")];
      active = Math.max(-1, Math.min(options.length - 1, k));
      options.forEach((option, i) => option.setAttribute("aria-selected", String(i === active)));
      if (options[active]) {
        options[active].scrollIntoView({ block: "nearest" });
        box.setAttribute("aria-activedescendant", options[active].id);
      }
    };
    const choose = (op) => {
      close();
      this.selectOp(op);
    };
    box.addEventListener("input", () => {
      const wanted = box.value.trim().toLowerCase(), exact = [], ends = [], within = [];
      if (!wanted) return close();
      for (let op = 0; op < plan.count; op++) {
        if (lowered[op] === wanted) exact.push(op);
        else if (lowered[op].endsWith(`/${wanted}`) || types[op] === wanted) ends.push(op);
        else if (lowered[op].includes(wanted) || types[op].includes(wanted)) within.push(op);
      }
      const matches = [exact, ends, within].flatMap((ops) => [...ops.filter((op) => plan.leafOf[op] >= 0), ...ops.filter((op) => plan.leafOf[op] < 0)]);
      list.replaceChildren(...matches.slice(0, MAX_MATCHES).map((op, k) => el("li", { role: "option", id: `found-${k}`, "data-op": op, "aria-selected": "false", onclick: () => choose(op) },
        swatch(plan, plan.ops.device[op]), el("span", {}, plan.ops.name[op], el("span", { class: "soft" }, ` ${plan.text(plan.ops.type[op])}`)))));
      if (matches.length > MAX_MATCHES) list.append(el("li", { class: "soft" }, `… and ${matches.length - MAX_MATCHES} more: the tab Ops lists all`));
      if (!matches.length) list.append(el("li", { class: "soft" }, "no op has this text in its name or type"));
      list.hidden = false;
      box.setAttribute("aria-expanded", "true");
      mark(-1);
      return undefined;
    });
    box.addEventListener("keydown", (event) => {
      const options = list.querySelectorAll("[role=option]");
      if (event.key === "ArrowDown") mark(active + 1);
      else if (event.key === "ArrowUp") mark(active - 1);
      else if (event.key === "Enter" && options.length) choose(Number(options[Math.max(0, active)].dataset.op));
      else if (event.key === "Escape") close();
      else return;
      event.preventDefault();
    });
    document.addEventListener("click", (event) => event.target.closest(".search") || close());
  }
}

/** The head of the page: headline, figures, devices, baselines, notes and terms. */
function overview(plan) {
  const { figures: f } = plan, constants = plan.ops.role.filter((role) => plan.text(role) === "constant").length;
  byId("headline").textContent = plan.headline;
  const figures = {
    "predicted step time": f.step_time, "total cost": formatNs(f.total_cost_ns), ops: `${plan.count}${constants ? `, ${constants} of them constants` : ""}`,
    transfers: `${plan.transfers.length}, ${formatBytes(f.copied_bytes)}, ${formatNs(f.transfer_ns)}`,
    objective: `${f.objective.replace("_", " ")}, ${f.status}${f.gap > 0 ? `, gap ${(100 * f.gap).toFixed(1)}%` : ""}`, costs: f.costs,
  };
  byId("figures").replaceChildren(...Object.entries(figures).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
  byId("figures").title = `${f.optimality}. ${f.solver}`;
  const meter = (share, colour) => el("span", { class: "meter", "aria-hidden": "true" }, el("i", { style: { width: `${Math.min(100, Math.max(share > 0 ? 1.5 : 0, 100 * share))}%`, background: colour } }));
  const head = (...names) => el("thead", {}, el("tr", {}, names.map((name) => el(name ? "th" : "td", { scope: name ? "col" : null, class: ["ops", "time", "peak memory", "kept", "limit", "step time", "total cost", "measured", "predicted", "calls"].includes(name) ? "number" : "" }, name))));
  byId("devices").replaceChildren(el("table", {}, head("device", "ops", "time", "peak memory", "kept", "limit", ""), el("tbody", {}, plan.devices.map((d, k) =>
    el("tr", {}, el("td", {}, swatch(plan, k), d.name), el("td", { class: "number" }, String(d.ops)), el("td", { class: "number" }, formatNs(d.time_ns)),
      el("td", { class: "number" }, formatBytes(d.peak_bytes)), el("td", { class: "number" }, formatBytes(d.persistent_bytes)),
      el("td", { class: "number" }, d.limit_bytes < 0 ? "none" : formatBytes(d.limit_bytes)),
      el("td", { title: "peak memory as a share of the limit" }, d.limit_bytes > 0 ? meter(d.peak_bytes / d.limit_bytes, plan.paintOf(k)[1]) : ""))))));
  const rows = [{ name: "this plan", feasible: true, step_time_ns: f.step_time_ns, total_cost_ns: f.total_cost_ns, note: "" }, ...plan.baselines];
  const by = f.objective === "total_cost" ? "total_cost_ns" : "step_time_ns", most = Math.max(1, ...rows.filter((r) => r.feasible).map((r) => r[by]));
  byId("baselines").replaceChildren(el("table", {}, head("placement", "step time", "total cost", "", ""), el("tbody", {}, rows.map((r, k) => el("tr", {},
    el("td", {}, k ? r.name : el("b", {}, r.name)), el("td", { class: "number" }, r.step_time_ns ? formatNs(r.step_time_ns) : "–"), el("td", { class: "number" }, r.total_cost_ns ? formatNs(r.total_cost_ns) : "–"),
    el("td", { style: { width: "22%" } }, r.feasible ? meter(r[by] / most, k ? "var(--soft)" : "var(--accent)") : ""), el("td", { class: "soft", title: r.note }, r.note))))));
  const verdict = byId("verdict");
  verdict.hidden = !plan.verdict;
  if (plan.verdict) {
    verdict.querySelector("div").replaceChildren(el("table", {}, head("candidate", "measured", "predicted", "calls", ""), el("tbody", {}, plan.verdict.rows.map((row) =>
      el("tr", {}, row.map((text, k) => el("td", { class: [1, 2, 3].includes(k) ? "number" : "" }, text)))))));
    verdict.querySelector("p").textContent = plan.verdict.end;
  }
  const notes = byId("notes");
  notes.hidden = !plan.notes.length;
  notes.querySelector("summary").textContent = `${plan.notes.length} ${plan.notes.length === 1 ? "note" : "notes"}`;
  const items = (texts) => texts.map((note) => el("li", {}, note)), more = plan.notes.slice(MAX_NOTES);
  notes.querySelector("ul").replaceChildren(...items(plan.notes.slice(0, MAX_NOTES)),
    more.length ? el("li", {}, el("details", {}, el("summary", {}, `${more.length} more`), el("ul", {}, items(more)))) : "");
  byId("terms").querySelector("dl").replaceChildren(...plan.terms.flatMap(([name, meaning, example]) =>
    [el("dt", {}, name), el("dd", {}, `${meaning} `, el("span", { class: "soft" }, `Example: ${example.replaceAll("`", "")}`))]));
}

unpacked("data").then((data) => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  byId("theme").textContent = dark ? "Light" : "Dark";
  const plan = new Plan(data);
  overview(plan);
  window.app = new App(plan);
  requestAnimationFrame(() => (document.documentElement.dataset.ready = String(Math.round(performance.now()))));
});
