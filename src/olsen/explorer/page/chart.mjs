// A chart as SVG: axes, lines, bands and dots in the pixels of its place, and a cursor for pointer and keyboard.

import { label, path, tag } from "./svg.mjs";

const MINUS = "\u2212";
const BEYOND = 1e5; // pixels; what lies further out is not seen, and numbers stay short
const NARROW = 480; // pixels; below, charts are lower and say less

/** A number for reading: three digits that matter, no exponent unless it must be. */
export function shown(value, digits = 3) {
  if (value === Infinity) return "∞";
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  const text = size >= 1e5 || (size > 0 && size < 1e-4) ? value.toExponential(1) : plain(value, size, digits);
  return text.replace("-", MINUS);
}

function plain(value, size, digits) {
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : digits);
}

/** Round numbers between two ends: 1, 2 or 5 times a power of ten. */
export function ticks(low, high, most = 6) {
  const raw = (high - low) / most, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= raw * (1 - 1e-9));
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const values = Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
  return values.map((value) => ({ value, text: (Math.abs(value) < step / 2 ? 0 : value).toFixed(decimals) }));
}

function logTicks(low, high) {
  const steps = high / low > 200 ? [1] : [1, 2, 5], found = [];
  for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) {
    found.push(...steps.map((step) => step * power).filter((value) => value >= low * 0.999 && value <= high * 1.001));
  }
  return found.map((value) => ({ value, text: String(value) }));
}

/** Places of numbers on an axis from `low` to `high`, drawn from pixel `from` to pixel `to`. */
function scaleOf({ low, high, log = false, bent = 0 }, from, to) {
  const bending = [(value) => Math.asinh(value / bent), (value) => bent * Math.sinh(value)];
  const [turn, back] = log ? [Math.log, Math.exp] : bent ? bending : [Number, Number];
  const a = turn(low), b = turn(high);
  const at = (value) => Math.min(BEYOND, Math.max(-BEYOND, from + ((turn(value) - a) / (b - a)) * (to - from)));
  return Object.assign(at, { inverse: (pixel) => back(a + ((pixel - from) / (to - from)) * (b - a)) });
}

export class Chart {
  /**
   * @param {HTMLElement} host
   * @param {{label: string, height?: number, pick?: (x: number) => void}} options `pick`: a click, or Enter
   */
  constructor(host, { label: name, height = 330, pick = null }) {
    Object.assign(this, { host, height, pick, spec: null, cursor: null, frameKey: "" });
    host.classList.add("chart");
    host.tabIndex = 0;
    host.setAttribute("role", "slider");
    host.setAttribute("aria-label", `${name}. Arrow keys read values off${pick ? ", Enter takes them" : ""}.`);
    const groups = ["frame", "marks", "cursor"].map((part) => tag("g", { class: part }));
    host.innerHTML = tag("svg", { "aria-hidden": "true" }, groups.join(""));
    this.svg = host.firstElementChild;
    [this.frame, this.marks, this.pointer] = this.svg.children;
    this.listen();
    new ResizeObserver(() => this.spec && host.clientWidth !== this.width && this.draw(this.spec)).observe(host);
  }

  get narrow() {
    return this.width < NARROW;
  }

  /**
   * Draw.
   *
   * @param {object} spec
   * - x, y: {low, high, log, bent (more room for what is smaller than this), label, ticks}
   * - marks, labels: make SVG with the help of this chart; marks are cut off at the frame
   * - reads: what the cursor reads off: {xs, ys (to find the nearest in both), at (where it starts), words, dots, tell}
   */
  draw(spec) {
    this.spec = spec;
    this.width = this.host.clientWidth;
    if (this.width === 0) return; // in a tab that is not shown
    const height = this.narrow ? Math.min(this.height, 260) : this.height;
    this.box = { left: 40, right: this.width - 14, top: 26, bottom: height - 38 };
    this.x = scaleOf(spec.x, this.box.left, this.box.right);
    this.y = scaleOf(spec.y, this.box.bottom, this.box.top);
    this.drawFrame(height);
    this.words = []; // beside lines, and above everything
    const marks = tag("g", { "clip-path": `url(#clip-${this.host.id})` }, spec.marks(this));
    this.marks.innerHTML = marks + this.words.join("") + (spec.labels?.(this) ?? "");
    this.drawCursor();
  }

  /** Axes, made anew only where they change. */
  drawFrame(height) {
    const { x, y } = this.spec, key = JSON.stringify([this.width, height, x, y]);
    if (key === this.frameKey) return;
    this.frameKey = key;
    const { left, right, top, bottom } = this.box;
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    this.svg.setAttribute("height", height);
    Object.assign(this.host.dataset, { xLow: x.low, xHigh: x.high, yLow: y.low, yHigh: y.high });
    this.host.dataset.box = `${left} ${top} ${right} ${bottom}`;
    const clip = tag("rect", { x: left, y: top, width: right - left, height: bottom - top });
    this.frame.innerHTML = [
      tag("clipPath", { id: `clip-${this.host.id}` }, clip),
      ...this.ticksAcross().map(({ value, text }) => this.tickAcross(this.x(value), text)),
      ...(y.ticks ?? ticks(y.low, y.high)).map(({ value, text }) => this.tickUp(this.y(value), text)),
      label("label", (left + right) / 2, height - 4, x.label, "middle"),
      label("label", 4, 13, y.label),
    ].join("");
  }

  ticksAcross() {
    const { x } = this.spec;
    if (x.ticks) return x.ticks;
    return x.log ? logTicks(x.low, x.high) : ticks(x.low, x.high, this.narrow ? 5 : 10);
  }

  tickAcross(at, text) {
    const { top, bottom } = this.box;
    const number = label("tick", at, bottom + 16, text.replace("-", MINUS), "middle");
    return number + path("grid", ["M", at, top], ["V", bottom]);
  }

  tickUp(at, text) {
    const { left, right } = this.box;
    const number = label("tick", left - 6, at + 4, text.replace("-", MINUS), "end");
    return number + path("grid", ["M", left, at], ["H", right]);
  }

  // -- what can be drawn ----------------------------------------------------------------------------------------

  /** Straight pieces between points, with a gap where a value is not finite. */
  line(xs, ys, style) {
    const steps = [];
    let pen = "M";
    for (let i = 0; i < xs.length; i++) {
      if (Number.isFinite(ys[i])) steps.push([pen, this.x(xs[i]), this.y(ys[i])]);
      pen = Number.isFinite(ys[i]) ? "L" : "M";
    }
    return path(`line ${style}`, ...steps);
  }

  band(xs, low, high, style) {
    const forth = xs.map((x, i) => [i === 0 ? "M" : "L", this.x(x), this.y(high[i])]);
    const back = xs.map((x, i) => ["L", this.x(x), this.y(low[i])]).reverse();
    return path(style, ...forth, ...back, ["Z"]);
  }

  dot(x, y, style, radius = 5) {
    return tag("circle", { class: style, cx: this.x(x), cy: this.y(y), r: radius });
  }

  /** A line across the chart at a height, with words at one end, above it or below. */
  level(y, style, words, end = "right", below = false) {
    const { left, right, top } = this.box, at = this.y(y), beside = at + (below ? 14 : -5);
    if (at < top) return "";
    const place = end === "right" ? right - 4 : left + 5, anchor = end === "right" ? "end" : "start";
    this.words.push(label("note halo", place, beside, words, anchor));
    return path(`line ${style}`, ["M", left, at], ["H", right]);
  }

  /** A line from bottom to top, with words beside it, towards the middle. */
  upright(x, style, words, y, room = 6) {
    const { left, right, top, bottom } = this.box, at = this.x(x);
    if (at < left - 1 || at > right + 1) return "";
    this.words.push(this.beside(at, y, words, "note halo", room));
    return path(`line ${style}`, ["M", at, top], ["V", bottom]);
  }

  /** Words to the right of a place, or to the left in the right half. */
  beside(at, y, words, style, room) {
    const flip = at > (this.box.left + this.box.right) / 2 - 1;
    return label(style, at + (flip ? -room : room), y, words, flip ? "end" : "start");
  }

  // -- reading off ----------------------------------------------------------------------------------------------

  listen() {
    const { host } = this;
    host.addEventListener("pointermove", (event) => this.moveTo(this.nearest(event)));
    host.addEventListener("pointerleave", () => this.moveTo(null));
    host.addEventListener("blur", () => this.moveTo(null));
    host.addEventListener("click", (event) => {
      this.moveTo(this.nearest(event));
      this.take();
    });
    host.addEventListener("keydown", (event) => this.key(event));
  }

  nearest(event) {
    const { xs, ys } = this.spec.reads, box = this.host.getBoundingClientRect();
    const px = event.clientX - box.left, py = event.clientY - box.top;
    const far = (i) => Math.hypot(this.x(xs[i]) - px, ys ? this.y(ys[i]) - py : 0);
    let best = 0;
    for (let i = 1; i < xs.length; i++) if (far(i) < far(best)) best = i;
    return best;
  }

  key(event) {
    const last = this.spec.reads.xs.length - 1, page = Math.max(1, Math.round(last / 10));
    const now = this.cursor ?? this.spec.reads.at;
    const to = {
      ArrowRight: now + 1, ArrowUp: now + 1, ArrowLeft: now - 1, ArrowDown: now - 1,
      PageUp: now + page, PageDown: now - page, Home: 0, End: last,
    };
    if (event.key === "Enter" || event.key === " ") this.take();
    else if (event.key === "Escape") this.moveTo(null);
    else if (event.key in to) this.moveTo(Math.min(last, Math.max(0, to[event.key])));
    else return;
    event.preventDefault();
  }

  take() {
    this.pick?.(this.spec.reads.xs[this.cursor ?? this.spec.reads.at]);
  }

  moveTo(index) {
    if (index === this.cursor || !this.spec) return;
    this.cursor = index;
    this.drawCursor();
  }

  drawCursor() {
    const { reads } = this.spec, last = reads.xs.length - 1;
    if (this.cursor !== null) this.cursor = Math.min(this.cursor, last);
    const i = this.cursor ?? reads.at, now = { min: 0, max: last, now: i, text: reads.words(i) };
    for (const [name, value] of Object.entries(now)) this.host.setAttribute(`aria-value${name}`, value);
    reads.tell?.(this.cursor);
    this.pointer.innerHTML = this.cursor === null ? "" : this.cursorAt(i);
  }

  cursorAt(i) {
    const { reads } = this.spec, { top, bottom } = this.box, at = this.x(reads.xs[i]);
    const dots = reads.dots(i).filter(([y]) => Number.isFinite(y) && this.y(y) >= top - 1);
    return [
      path("line hair", ["M", at, top], ["V", bottom]),
      ...dots.map(([y, style]) => this.dot(reads.xs[i], y, style, 4)),
      this.beside(at, top + 32, reads.words(i), "note strong halo", 7),
    ].join("");
  }
}
