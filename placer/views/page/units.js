// Times and sizes as the command line writes them, and helpers to make elements.

function three(number) {
  const size = Math.abs(number), digits = size < 9.995 ? 2 : size < 99.95 ? 1 : 0, scaled = number * 10 ** digits;
  // Ties go to the even digit as in Python; only multiples of 1/8 can be ties.
  const tie = Number.isInteger(8 * number) && Math.abs(scaled % 1) === 0.5;
  return (tie ? (2 * Math.round(scaled / 2)) / 10 ** digits : number).toFixed(digits);
}

function formatNs(ns) {
  for (const [unit, scale] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]]) {
    if (Math.abs(ns) >= scale) return `${three(ns / scale)} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}

function formatBytes(size) {
  for (const [unit, scale] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (Math.abs(size) >= scale) return `${three(size / scale)} ${unit}`;
  }
  return `${Math.round(size)} B`;
}

/** The text, shortened at its start: the end of a long name says more. Of a stretch, "first … last", both ends are kept. */
function fitted(text, length) {
  const ends = text.split(" … ");
  if (ends.length === 2 && text.length > length) return ends.map((end) => fitted(end, (length - 3) >> 1)).join(" … ");
  const kept = Math.max(6, length);
  return text.length <= kept ? text : `…${text.slice(1 - kept)}`;
}

/** Makes an element. Attributes that start with "on" are listeners, `style` is an object, children are nodes or text. */
function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(made.style, value);
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

/** A name that may be broken into lines after its slashes. */
function breakable(name) {
  return name.split("/").flatMap((step, k) => (k ? ["/", document.createElement("wbr"), step] : [step]));
}

const byId = (id) => document.getElementById(id);
