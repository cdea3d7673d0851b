// The first tab: theory's curves for six letters.

import { Chart, shown } from "./chart.mjs";
import { announcer, choice, evenly, nearestOf, oneOf, slider } from "./controls.mjs";
import { bestAlpha, bestMu, bestPenalty, curvesOver, peakOf, pointOf, wholeSizes } from "./risk_curves.mjs";
import { SCHEMAS, starts } from "./state.mjs";
import { label, path } from "./svg.mjs";
import { optimalRidgeRisk } from "./theory.mjs";

const CURVES = ["risk", "bias", "variance"];
const TOPS = [1.25, 2, 3, 5, 10, 20, 50];
const KS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200, 300, 500, 750, 1000, Infinity];
const LETTERS = [
  ["gamma", "γ", "columns per row, <i>p</i>/<i>n</i>", evenly(0.1, 4, 0.01)],
  ["sigma", "σ", "noise", evenly(0, 3, 0.01)],
  ["alpha", "α", "fraction of the columns", evenly(0.01, 1, 0.005)],
  ["eta", "η", "fraction of the rows", evenly(0.2, 1, 0.005)],
  ["k", "k", "members", oneOf(KS)],
  ["mu", "μ", "factor on the average", evenly(0, 4, 0.01)],
];
const TABLE = {
  alpha: [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1],
  k: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000],
  lam: [0, 0.05, 0.1, 0.2, 0.5, 1, 2, 4],
};
const SIGNS = { alpha: "α", k: "k", lam: "λ/n" };
const AXES = {
  alpha: { low: 0, high: 1, label: "fraction of the columns in a member, α" },
  k: { low: 1, high: 1000, log: true, label: "members, k" },
  lam: { low: 0, high: 4, label: "penalty of the members, λ/n" },
};

/** What to try: settings, and what they show. "best" is found when it is asked for. */
const TRIES = [
  {
    title: "Ridge without a penalty",
    settings: { gamma: 1, sigma: 0.7, k: Infinity, alpha: "best" },
    words: `With infinitely many members, the lowest point of the risk curve lies on the ridge line. No member has a
      penalty: leaving columns out does the work.`,
  },
  {
    title: "How many are many?",
    settings: { gamma: 1, sigma: 0.7, k: 20, alpha: 0.48, over: "k" },
    words: `What a finite ensemble pays falls as 1/<i>k</i>. Twenty members pay about 10 % here, two hundred 1 %.`,
  },
  {
    title: "The peak",
    settings: { gamma: 2, sigma: 0.5, k: 20, alpha: 0.45 },
    words: `A member with as many columns as rows fits every row, noise and all, and its risk has no bound. Set <i>k</i>
      to ∞ and the peak is gone: members that err differently cancel.`,
  },
  {
    title: "Fewer rows",
    settings: { gamma: 0.5, sigma: 1, k: 50, alpha: 0.5, eta: 0.6 },
    words: `Members on 60 % of the rows. Slide <i>η</i>: only the part that falls as 1/<i>k</i> moves, until the peak
      arrives. With <i>k</i> = ∞ nothing moves below it.`,
  },
  {
    title: "Undo some shrinkage",
    settings: { gamma: 1, sigma: 0.7, k: Infinity, alpha: 0.2, mu: "best" },
    words: `Too few columns shrink the average too much. A factor <i>μ</i> above 1 takes part of that back; at the best
      <i>α</i> it would be 1.`,
  },
  {
    title: "A penalty instead",
    settings: { gamma: 1, sigma: 0.7, k: Infinity, alpha: 0.8, over: "lam" },
    words: `Members with too many columns, and now each member is a ridge regression. The best penalty reaches the
      ridge line again. With the best <i>α</i> the best penalty is none.`,
  },
  {
    title: "Members that avoid each other",
    settings: { gamma: 0.8, sigma: 1, k: 12, alpha: 0.33, size: "finite", n: 60, design: "balanced" },
    words: `Balanced members share as few columns as they can. Switch the design and compare: each member as good as
      before, but less like the others, and the average is better.`,
  },
];

export function createRiskTab(root, update) {
  return new RiskTab(root, update);
}

class RiskTab {
  constructor(root, update) {
    const find = (id) => root.querySelector(`#${id}`);
    Object.assign(this, { find, update, say: announcer(find("risk-said")) });
    const pick = (x) => this.values.over !== "lam" && update({ [this.values.over]: this.clamp(this.values.over, x) });
    this.chart = new Chart(find("risk-chart"), { label: "Risk, bias and variance", height: 460, pick });
    this.makeControls(update);
    find("best-alpha").addEventListener("click", () => update({ alpha: this.clamp("alpha", bestAlpha(this.values)) }));
    find("best-mu").addEventListener("click", () => update({ mu: this.clamp("mu", bestMu(this.values)) }));
    find("risk-numbers").addEventListener("toggle", () => this.fillTable());
    this.listTries(find("risk-tries"));
  }

  makeControls(update) {
    const make = (host, name, letter, title, scale) => {
      const options = { id: name, letter, title, scale, read: SCHEMAS.risk[name].read };
      return slider(this.find(host), options, (value) => update({ [name]: value }));
    };
    const choose = (host, id, title, options) =>
      choice(this.find(host), { id, title, options }, (value) => update({ [id]: value }));
    const letters = [["alpha", "<i>α</i>, columns"], ["k", "<i>k</i>, members"], ["lam", "<i>λ</i>, penalty"]];
    this.over = choose("risk-over", "over", "Curves over", letters);
    this.sliders = LETTERS.map((letter) => make("risk-letters", ...letter));
    this.size = choose("risk-size", "size", "Problem", [["limit", "very large"], ["finite", "given <i>n</i>"]]);
    this.n = make("risk-size", "n", "n", "rows", evenly(20, 200, 1));
    const designs = ["independent", "balanced"].map((word) => [word, word]);
    this.design = choose("risk-size", "design", "Members", designs);
  }

  clamp(name, value) {
    return SCHEMAS.risk[name].read(String(value));
  }

  listTries(list) {
    for (const { title, settings, words } of TRIES) {
      const item = document.createElement("li");
      item.innerHTML = `<button type="button">${title}</button><p>${words}</p>`;
      item.firstElementChild.addEventListener("click", () => this.try(settings));
      list.append(item);
    }
  }

  try(settings) {
    const values = { ...starts("risk"), ...settings };
    if (values.alpha === "best") values.alpha = this.clamp("alpha", bestAlpha(values));
    if (values.mu === "best") values.mu = this.clamp("mu", bestMu(values));
    this.update(values);
    this.find("risk-chart").scrollIntoView({ block: "nearest" });
  }

  show(values) {
    const finite = values.size === "finite", sizes = wholeSizes(values);
    const extras = finite ? { gamma: `p = ${sizes.p}`, alpha: `m = ${sizes.m}`, eta: `τ = ${sizes.tau}` } : {};
    this.values = values;
    LETTERS.forEach(([name], i) => this.sliders[i](values[name], extras[name] ?? ""));
    this.over(values.over);
    this.find("click-words").hidden = values.over === "lam"; // members have no penalty elsewhere on the page
    this.size(values.size);
    this.n(values.n);
    this.design(values.design, !finite);
    this.find("risk-size").classList.toggle("finite", finite);
    const settings = values.over === "lam" ? { ...values, size: "limit" } : values; // there is no formula at a given n
    this.curves = curvesOver(values.over, settings);
    this.point = pointOf(settings);
    this.ridge = optimalRidgeRisk(settings.size === "finite" ? sizes.p / sizes.n : values.gamma, values.sigma);
    this.best = values.over === "lam" ? bestPenalty(settings) : bestAlpha(values);
    this.drawChart();
    this.fillTable();
    this.tellStatus();
  }

  drawChart() {
    const { values, curves, point } = this, { xs } = curves, overK = values.over === "k";
    const here = { k: Math.min(values.k, xs.at(-1)), lam: 0 }[values.over] ?? sharpAlpha(values);
    const words = { k: (x) => `k = ${x}`, lam: (x) => `λ/n = ${shown(x)}` }[values.over] ?? ((x) => alphaWords(values, x));
    this.chart.draw({
      x: AXES[values.over],
      y: { low: 0, high: topOf(curves, overK), label: "risk: mean squared error beyond the noise" },
      marks: (c) => this.rules(c) + this.lines(c, here),
      labels: (c) => (point.risk > c.spec.y.high ? arrowUp(c, here, point.risk) : ""),
      reads: {
        xs,
        at: xs.indexOf(nearestOf(xs, here)),
        words: (i) => words(xs[i]),
        dots: (i) => CURVES.map((name) => [curves[name][i], name]),
        tell: (i) => {
          if (i === null) this.tell(point, overK && values.k === Infinity ? "k = ∞" : words(overK ? values.k : here));
          else this.tell(Object.fromEntries(CURVES.map((name) => [name, curves[name][i]])), words(xs[i]));
        },
      },
    });
  }

  lines(c, here) {
    const { curves, point } = this;
    const drawn = [...CURVES].reverse().map((name) => c.line(curves.xs, curves[name], name));
    if (point.risk !== Infinity) drawn.push(c.dot(here, point.risk, "risk here", 6));
    return drawn.join("");
  }

  rules(c) {
    if (this.values.over === "k") return this.rulesOverK(c);
    if (this.values.over === "alpha") return this.rulesOverAlpha(c);
    return this.rulesOverPenalty(c);
  }

  rulesOverPenalty(c) {
    const words = this.best > 0 ? `best λ/n = ${shown(this.best)}` : "no penalty is best";
    const best = c.upright(this.best, "best", words, c.box.top + 14);
    return c.level(1, "zero", "predicting 0") + this.ridgeLine(c) + best;
  }

  rulesOverK(c) {
    const large = pointOf({ ...this.values, k: Infinity }).risk;
    return c.level(1, "zero", "predicting 0") + this.ridgeLine(c) + c.level(large, "limit", "k = ∞", "left");
  }

  rulesOverAlpha(c) {
    const { values, best } = this, peak = peakOf(values), { top, bottom } = c.box;
    const where = c.narrow ? "m = τ" : "as many columns as rows";
    const infinite = pointOf({ ...values, alpha: peak }).risk === Infinity; // not for k = ∞, unless n = p
    const words = infinite ? `peak: ${where}` : `${where}: no peak`;
    const rules = [c.level(1, "zero", "predicting 0", "left"), this.ridgeLine(c)];
    if (peak <= 1) rules.push(c.upright(peak, "peak", words, top + 14, 24));
    rules.push(c.upright(best, "best", `best α = ${shown(best)}`, bottom - 8));
    return rules.join("");
  }

  ridgeLine(c) {
    return c.level(this.ridge, "ridge", "ridge at its best", "right", true);
  }

  /** The values at the cursor, or of the settings where there is none. */
  tell(point, words) {
    const values = { ...point, ridge: this.ridge };
    for (const [name, value] of Object.entries(values)) {
      const cell = this.find(`${name}-value`);
      cell.textContent = shown(value);
      cell.dataset.value = value;
    }
    this.find("risk-where").textContent = words;
    this.say(`${words}: ${Object.entries(values).map(([name, value]) => `${name} ${shown(value)}`).join(", ")}.`);
  }

  tellStatus() {
    const { values, best } = this, isPenalty = values.over === "lam", name = isPenalty ? "lam" : "alpha";
    const risk = pointOf({ ...values, [name]: best, size: isPenalty ? "limit" : values.size }).risk;
    const found = isPenalty
      ? `For this α the best penalty is ${best > 0 ? `λ/n = ${shown(best)}` : "none"}`
      : `The best α below the peak is ${shown(best)}`;
    const cell = this.find("best-value");
    Object.assign(cell.dataset, { letter: name, best, risk });
    cell.textContent = `${found}, with risk ${shown(risk)}.`;
    this.find("risk-status").innerHTML = statusOf(values);
  }

  fillTable() {
    const details = this.find("risk-numbers");
    if (!details.open) return;
    const { values } = this, { over } = values;
    const rows = TABLE[over].map((wanted) => {
      const x = over === "alpha" ? sharpAlpha({ ...values, alpha: wanted }) : wanted;
      const size = over === "lam" ? "limit" : values.size;
      return [x, pointOf({ ...values, size, [over]: x })];
    });
    const cell = (value) => `<td data-value="${value}">${shown(value, 4)}</td>`;
    const head = (x) => `<th scope="row" data-value="${x}">${Number(x.toFixed(4))}</th>`;
    const line = ([x, point]) => `<tr>${head(x)}${CURVES.map((name) => cell(point[name])).join("")}</tr>`;
    details.querySelector("thead th").textContent = SIGNS[over];
    details.querySelector("tbody").innerHTML = rows.map(line).join("");
  }
}

/** Alpha as it is used: of a whole number of columns where these are given. */
function sharpAlpha(values) {
  if (values.size !== "finite") return values.alpha;
  const { m, p } = wholeSizes(values);
  return m / p;
}

function alphaWords(values, alpha) {
  const share = `α = ${shown(alpha)}`;
  return values.size === "finite" ? `${share}, m = ${Math.round(alpha * wholeSizes(values).p)}` : share;
}

/** The top of the axis: steps, so that it does not jump with every move. */
function topOf(curves, overK) {
  const lowest = Math.min(...curves.risk.filter(Number.isFinite));
  const wanted = overK ? Math.min(10, 1.05 * Math.max(1.2, curves.risk[0])) : Math.max(1.6, 1.5 * lowest);
  return TOPS.find((top) => top >= wanted) ?? TOPS.at(-1);
}

/** Where the settings' own point lies above the chart. */
function arrowUp(c, x, risk) {
  const at = c.x(x), { top, left, right } = c.box, flip = at > (left + right) / 2;
  const arrow = path("risk here", ["M", at - 6, top + 9], ["L", at, top], ["L", at + 6, top + 9], ["Z"]);
  const words = `risk ${shown(risk)}, above the chart`;
  return arrow + label("note strong halo", at + (flip ? -10 : 10), top + 32, words, flip ? "end" : "start");
}

/** How far the formula behind the point in use can be trusted. */
function statusOf(values) {
  const { n, p, m, tau } = wholeSizes(values), below = values.alpha * values.gamma < values.eta;
  if (values.over === "lam") return "The limit of large <i>n</i> and <i>p</i>; members with a penalty: an asymptotic formula.";
  if (values.size !== "finite") {
    const limit = "The limit of large <i>n</i> and <i>p</i>, Gaussian rows with independent columns.";
    const above = "Above the peak members interpolate (minimum norm): an asymptotic formula, confirmed by simulation.";
    return `${limit} ${below ? "Below the peak: a theorem." : above}`;
  }
  const sizes = `<i>n</i> = ${n} rows, <i>p</i> = ${p} columns; members of ${m} columns and ${tau} rows.`;
  if (Math.abs(m - tau) <= 1) return `${sizes} As many columns as rows, or nearly: the expected risk is infinite.`;
  if (m > tau) {
    const folds = "Balanced means here that rows are cut into folds.";
    return `${sizes} Above the peak: exact for one member, asymptotic for pairs. ${folds}`;
  }
  const partly = "Rows left out: exact for one member, a close approximation for pairs.";
  return `${sizes} ${tau === n ? "All rows in use: the expected risk is exact." : partly}`;
}
