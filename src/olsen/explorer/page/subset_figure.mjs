// One member at a time: its rows and columns in the data, the columns of those before it, and the coefficients.

import { label, path, tag } from "./svg.mjs";

const ROW = 7; // pixels, as the next ones
const STRIP = 6;
const BARS = 170;
const HEAD = 22;
const GAP = 12;
const STRIPS = 20; // members whose columns are shown
const REACH = 0.85; // of coefficients shown, up and down
const FULL = 2.6; // a value in the data that has full colour

export class SubsetFigure {
  constructor(svg) {
    this.svg = svg;
    svg.innerHTML = ["cells", "strips", "coefficients"].map((part) => tag("g", { class: part })).join("");
    [this.cells, this.strips, this.bars] = svg.children;
    new ResizeObserver(() => this.scene && svg.clientWidth !== this.width && this.draw(this.scene)).observe(svg);
  }

  /** @param {{data: object, beta: Float64Array, members: object[], mean: Float64Array}} scene */
  draw(scene) {
    const fresh = scene.data !== this.scene?.data || this.svg.clientWidth !== this.width;
    this.scene = scene;
    this.last = scene.members[scene.members.length - 1];
    this.width = this.svg.clientWidth;
    if (this.width === 0) return; // in a tab that is not shown
    this.measure();
    if (fresh) this.drawCells();
    this.lightCells();
    this.drawStrips();
    this.drawBars();
    this.describe();
  }

  /** Columns lie below each other in all three parts. */
  measure() {
    const { data, beta } = this.scene;
    this.unit = this.width / (beta.length + 1.6);
    this.stripTop = HEAD + data.y.length * ROW + GAP + HEAD;
    this.barTop = this.stripTop + STRIPS * STRIP + GAP + HEAD;
    const height = this.barTop + BARS + 4;
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    this.svg.setAttribute("height", height);
  }

  block(style, column, y, height, more = {}) {
    return tag("rect", { class: style, x: column * this.unit, y, width: this.unit - 1, height: height - 1, ...more });
  }

  cell(column, i, value) {
    const strength = Math.min(1, 0.12 + Math.abs(value) / FULL), style = value < 0 ? "negative" : "positive";
    return this.block(`cell ${style}`, column, HEAD + i * ROW, ROW, { "fill-opacity": strength });
  }

  drawCells() {
    const { data, beta } = this.scene, p = beta.length, n = data.y.length;
    const all = data.columns.flatMap((column, j) => Array.from(column, (value, i) => this.cell(j, i, value)));
    const targets = Array.from(data.y, (value, i) => this.cell(p + 0.6, i, value));
    const names = [
      label("label", 0, 14, `X, ${n} rows and ${p} columns`),
      label("label", (p + 1.1) * this.unit, 14, "y", "middle"),
    ];
    this.cells.innerHTML = [...names, ...all, ...targets].join("");
    this.rects = [...this.cells.querySelectorAll("rect")];
  }

  /** Rows and columns of the last member in full colour; everything before there is one. */
  lightCells() {
    const { data } = this.scene, { last } = this, n = data.y.length, targets = data.columns.length;
    const rows = new Set(last?.rows), columns = new Set(last?.columns);
    this.rects.forEach((rect, index) => {
      const j = Math.floor(index / n), lit = !last || (rows.has(index % n) && (j === targets || columns.has(j)));
      rect.classList.toggle("out", !lit);
    });
  }

  drawStrips() {
    const { members, beta } = this.scene, top = this.stripTop, recent = members.slice(-STRIPS).reverse();
    const width = beta.length * this.unit - 1;
    const parts = [
      label("label", 0, top - 7, "Columns of the last members, newest on top"),
      tag("rect", { class: "ground", x: 0, y: top, width, height: STRIPS * STRIP - 1 }),
    ];
    recent.forEach(({ columns }, r) => {
      const y = top + r * STRIP, ends = r === 0 || r === recent.length - 1;
      parts.push(...columns.map((j) => this.block(r === 0 ? "now" : "then", j, y, STRIP)));
      if (ends) parts.push(label("tick", width + 6, y + STRIP, members.length - r));
    });
    this.strips.innerHTML = parts.join("");
  }

  drawBars() {
    const { members, beta, mean } = this.scene, middle = this.barTop + BARS / 2, width = this.unit - 1;
    const y = (value) => middle - (Math.max(-REACH, Math.min(REACH, value)) / REACH) * (BARS / 2);
    const parts = [
      label("label", 0, this.barTop - 7, "Coefficients"),
      path("axis", ["M", 0, middle], ["H", beta.length * this.unit]),
    ];
    beta.forEach((truth, j) => {
      const x = j * this.unit, height = Math.max(0.5, Math.abs(y(mean[j]) - middle));
      const bar = { class: "mean", x: x + width * 0.2, y: Math.min(middle, y(mean[j])), width: width * 0.6, height };
      if (members.length > 0) parts.push(tag("rect", bar));
      parts.push(path("truth", ["M", x, y(truth)], ["h", width]));
    });
    for (const j of this.last?.columns ?? []) {
      const at = { cx: j * this.unit + width / 2, cy: y(this.last.coefficients[j]), r: 3 };
      parts.push(tag("circle", { class: "member", ...at }));
    }
    this.bars.innerHTML = parts.join("");
  }

  describe() {
    const { last } = this, columns = last?.columns.map((j) => j + 1).join(", ");
    const words = `Member ${this.scene.members.length} uses ${last?.rows.length} rows and columns ${columns}.`;
    this.svg.setAttribute("aria-label", last ? words : "The data, before any member is drawn.");
  }
}
