// The tree of scopes beside the drawing. It has the same content, for the keyboard and for screen readers.

class Outline {
  constructor(plan, app) {
    this.plan = plan;
    this.app = app;
    this.list = byId("outline");
    this.list.addEventListener("click", (event) => {
      const item = event.target.closest("[role=treeitem]");
      if (!item) return;
      const node = plan.nodes[item.dataset.node];
      if (event.target.closest(".twist") || this.app.selected === node) app.toggle(node);
      else app.select(node);
      this.#focus(node);
    });
    this.list.addEventListener("keydown", (event) => this.#key(event));
  }

  draw() {
    const focused = this.list.contains(document.activeElement) ? Number(document.activeElement.dataset.node) : null;
    this.list.replaceChildren(...this.plan.root.children.map((node) => this.#item(node, 1)));
    const items = this.#items(), current = this.app.selected && this.#of(this.app.selected);
    (current ?? items[0])?.setAttribute("tabindex", "0");
    if (focused !== null) this.#focus(this.plan.nodes[focused]);
  }

  #item(node, level) {
    const { plan, app } = this, scope = node.op < 0, open = scope && app.graph.isOpen(node);
    const time = plan.nodeTime(node);
    const names = plan.devices.filter((_, k) => node.held[k]).map((device) => device.name).join(" and ");
    const what = scope ? `${node.ops} ops` : plan.text(plan.ops.type[node.op]), inside = scope ? node.crossings : 0;
    const description = `${plan.shortLabel(node)}, ${what} on ${names}${time ? `, ${formatNs(time)}` : ""}${inside ? `, ${inside} crossings inside` : ""}`;
    const line = el("div", { class: "item", title: description },
      el("span", { class: "spoken", id: `spoken-${node.id}` }, description),
      el("span", { class: "twist", "aria-hidden": "true" }, scope ? (open ? "▾" : "▸") : ""),
      this.#shares(node),
      el("span", { class: "name", "aria-hidden": "true" }, fitted(plan.shortLabel(node), 26 - 2 * level - (inside ? 6 : 0))),
      inside ? el("span", { class: "crosses", "aria-hidden": "true" }, `⇄${inside}`) : null,
      el("span", { class: "soft number", "aria-hidden": "true" }, time ? formatNs(time) : ""));
    return el("li", {
      role: "treeitem", "data-node": node.id, "aria-level": level, "aria-labelledby": `spoken-${node.id}`, tabindex: "-1",
      "aria-expanded": scope ? String(open) : null, "aria-selected": String(app.selected === node),
    }, line, open ? el("ul", { role: "group" }, node.children.map((child) => this.#item(child, level + 1))) : null);
  }

  #shares(node) {
    const { plan } = this;
    return el("span", { class: "shares", "aria-hidden": "true" }, [...node.held].map((held, k) =>
      held ? el("i", { style: { flex: `${Math.max(held / node.ops, 0.12)}`, background: plan.paintOf(k)[1] } }) : null));
  }

  #items() {
    return [...this.list.querySelectorAll("[role=treeitem]")];
  }

  #of(node) {
    return this.list.querySelector(`[data-node="${node.id}"]`);
  }

  #focus(node) {
    const item = this.#of(node);
    if (!item) return;
    for (const other of this.#items()) other.setAttribute("tabindex", other === item ? "0" : "-1");
    item.focus();
  }

  reveal(node) {
    this.#of(node)?.querySelector(".item").scrollIntoView({ block: "nearest" });
  }

  #key(event) {
    const items = this.#items(), at = items.indexOf(document.activeElement);
    if (at < 0) return;
    const node = this.plan.nodes[items[at].dataset.node], open = this.app.graph.isOpen(node), scope = node.op < 0;
    const go = (k) => items[k] && this.#focus(this.plan.nodes[items[k].dataset.node]);
    const keys = {
      ArrowDown: () => go(at + 1),
      ArrowUp: () => go(at - 1),
      Home: () => go(0),
      End: () => go(items.length - 1),
      ArrowRight: () => (scope && !open ? this.app.toggle(node) : go(at + 1)),
      ArrowLeft: () => (scope && open ? this.app.toggle(node) : node.parent !== this.plan.root && this.#focus(node.parent)),
      Enter: () => this.app.select(node),
      " ": () => this.app.select(node),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  }
}
