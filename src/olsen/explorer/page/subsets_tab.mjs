// The second tab: members drawn and fitted here, and their average beside what theory expects.

import { Chart, shown } from "./chart.mjs";
import { announcer, choice, evenly, slider } from "./controls.mjs";
import { Ensemble, Repetition, signal } from "./simulation.mjs";
import { SCHEMAS } from "./state.mjs";
import { SubsetFigure } from "./subset_figure.mjs";
import { expectedRisk } from "./theory.mjs";

const N = 30; // rows
const P = 20; // columns
const MOST = 60; // members
const TRIALS = 300;
const BUDGET = 10; // milliseconds of work between two pictures
const XS = Array.from({ length: MOST }, (_, i) => i + 1);
const K_TICKS = [1, 2, 5, 10, 20, 40, 60].map((value) => ({ value, text: String(value) }));
const RISK_TOPS = [1, 1.5, 2, 3, 5, 8, 12, 20, 40];
const ALONE = "Theory speaks of the mean over data sets; one data set has its own luck. Repeat to see the mean.";

export function createSubsetsTab(root, update) {
  return new SubsetsTab(root, update);
}

class SubsetsTab {
  constructor(root, update) {
    const find = (id) => root.querySelector(`#${id}`);
    Object.assign(this, { find, beta: signal(P), timer: 0, key: "", members: [] });
    this.say = announcer(find("subsets-said"));
    this.figure = new SubsetFigure(find("subsets-figure"));
    this.chart = new Chart(find("subsets-chart"), { label: "Risk of the average against the number of members" });
    this.makeControls(find("subsets-letters"), update);
    const act = (id, action) => find(id).addEventListener("click", action);
    act("draw-one", () => {
      this.stop();
      this.add();
    });
    act("play", () => (this.timer ? this.stop() : this.play()));
    act("again", () => this.restart());
    act("new-data", () => update({ seed: this.values.seed + 1 }));
    act("repeat", () => this.repeat());
  }

  /** Members have at least two rows more than columns: moving one moves the other where it must. */
  makeControls(host, update) {
    const { m, tau, sigma } = SCHEMAS.subsets;
    const make = (id, letter, title, scale, { read }, tell) => slider(host, { id, letter, title, scale, read }, tell);
    const moveM = (value) => update({ m: value, tau: Math.max(this.values.tau, value + 2) });
    const moveTau = (value) => update({ tau: value, m: Math.min(this.values.m, value - 2) });
    this.m = make("m", "m", "columns of a member", evenly(1, P, 1), m, moveM);
    this.tau = make("tau", "τ", "rows of a member", evenly(6, N, 1), tau, moveTau);
    this.sigma = make("noise", "σ", "noise", evenly(0, 3, 0.05), sigma, (value) => update({ sigma: value }));
    const options = [["independent", "independent"], ["balanced", "balanced"]];
    this.design = choice(host, { id: "drawing", title: "Members", options }, (design) => update({ design }));
  }

  show(values) {
    const m = Math.min(values.m, values.tau - 2), { tau, sigma, design, seed } = values;
    this.values = { ...values, m };
    this.m(m, `of ${P}`);
    this.tau(tau, `of ${N}`);
    this.sigma(sigma);
    this.design(design);
    this.find("seed").textContent = seed;
    const settings = { n: N, m, tau, sigma, design, seed }, key = JSON.stringify(settings);
    if (key === this.key) {
      this.draw();
      return;
    }
    Object.assign(this, { key, settings, repetition: null });
    this.theory = [...XS, Infinity].map((k) => expectedRisk(N, P, m, sigma, { k, tau, design }));
    this.restart();
  }

  hide() {
    this.stop();
    this.repeating = null;
  }

  restart() {
    this.hide();
    this.ensemble = new Ensemble(this.settings, this.beta, this.settings.seed);
    Object.assign(this, { members: [], risks: [] });
    this.draw();
  }

  /** Draw one more member; whether there may be another. */
  add() {
    if (this.members.length >= MOST) return false;
    this.members.push(this.ensemble.add());
    this.risks.push(this.ensemble.risk());
    this.draw();
    return this.members.length < MOST;
  }

  /** One member after the other, the first ones slowly; at once for those who do not want motion. */
  play() {
    if (this.members.length >= MOST) this.restart();
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      while (this.add());
      return;
    }
    const pause = () => (this.members.length < 5 ? 900 : this.members.length < 12 ? 400 : 110);
    const step = () => {
      this.timer = this.add() ? setTimeout(step, pause()) : 0;
      this.tellButtons();
    };
    step();
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.tellButtons();
  }

  tellButtons() {
    this.find("play").textContent = this.timer ? "Pause" : "Play";
    this.find("draw-one").disabled = this.members.length >= MOST;
    this.find("repeat").textContent = this.repeating ? "Stop" : `Repeat on ${TRIALS} data sets`;
  }

  /** Many data sets, a few at a time, so that the page stays awake. */
  repeat() {
    if (this.repeating) {
      this.repeating = null;
      this.tellButtons();
      return;
    }
    this.stop();
    const running = new Repetition(this.settings, this.beta, this.settings.seed, MOST);
    Object.assign(this, { repeating: running, repetition: running });
    const step = () => {
      if (this.repeating !== running) return;
      const until = performance.now() + BUDGET;
      while (running.trials < TRIALS && performance.now() < until) running.add();
      if (running.trials >= TRIALS) this.repeating = null;
      else setTimeout(step, 0);
      this.draw();
    };
    step();
  }

  draw() {
    const { members, ensemble, beta, repetition } = this;
    this.average = repetition?.trials > 1 ? { mean: repetition.mean, error: repetition.standardError() } : null;
    this.tellButtons();
    this.figure.draw({ data: ensemble.data, beta, members, mean: ensemble.mean() });
    this.drawChart();
    this.tellMember();
    this.tellRepetition();
  }

  drawChart() {
    const { theory, risks, average } = this, at = Math.max(0, risks.length - 1);
    const wanted = 1.08 * Math.max(theory[0], risks[0] ?? 0, average?.mean[0] ?? 0);
    this.chart.draw({
      x: { low: 1, high: MOST, log: true, label: "members so far, k", ticks: K_TICKS },
      y: { low: 0, high: RISK_TOPS.find((top) => top >= wanted) ?? RISK_TOPS.at(-1), label: "risk of the average" },
      marks: (c) => this.marks(c),
      reads: {
        xs: XS,
        at,
        words: (i) => `k = ${XS[i]}`,
        dots: (i) => [[risks[i], "risk"], [theory[i], "theory"], [average?.mean[i], "variance"]],
        tell: (i) => this.tellChart(i ?? at),
      },
    });
  }

  marks(c) {
    const { theory, risks, average } = this, parts = [c.level(theory[MOST], "limit", "theory, k = ∞", "left", true)];
    if (average) {
      const edge = (side) => XS.map((_, i) => average.mean[i] + side * 2 * average.error[i]);
      parts.push(c.band(XS, edge(-1), edge(1), "band"), c.line(XS, average.mean, "variance"));
    }
    parts.push(c.line(XS, theory.slice(0, MOST), "theory"), c.line(XS.slice(0, risks.length), risks, "risk"));
    if (risks.length > 0) parts.push(c.dot(risks.length, risks.at(-1), "risk here"));
    return parts.join("");
  }

  tellChart(i) {
    const { average } = this, cells = { now: this.risks[i], theory: this.theory[i], mean: average?.mean[i] };
    this.find("subsets-where").textContent = `k = ${XS[i]}`;
    for (const [name, value] of Object.entries(cells)) {
      const cell = this.find(`${name}-risk`);
      cell.textContent = value === undefined ? "–" : shown(value);
      cell.dataset.value = value ?? "";
    }
    this.find("mean-risk").dataset.error = average?.error[i] ?? "";
    if (average) this.find("mean-risk").textContent += ` ± ${shown(average.error[i])}`;
  }

  tellMember() {
    const { members, risks, theory } = this, k = members.length, words = this.find("member-words");
    if (k === 0) {
      words.textContent = "No member yet. Draw one, or press Play.";
      return;
    }
    const { columns, rows, coefficients } = members[k - 1], alone = shown(distance(coefficients, this.beta));
    words.textContent = `Member ${k}: ${columns.length} columns, ${rows.length} rows. Its own risk: ${alone}.`;
    this.say(`${k} members; risk of their average ${shown(risks[k - 1])}, theory ${shown(theory[k - 1])}.`);
  }

  tellRepetition() {
    const { repetition, average, theory } = this, cell = this.find("repetition");
    cell.dataset.trials = repetition?.trials ?? 0;
    cell.textContent = ALONE;
    if (!average) return;
    const apart = (i) => `${shown((average.mean[i] - theory[i]) / average.error[i], 1)} at k = ${i + 1}`;
    const { tau } = this.settings;
    const status = tau < N ? "With rows left out it is a close approximation." : "With all rows it is exact.";
    cell.textContent =
      `Mean of ${repetition.trials} data sets (green, with two standard errors). From theory, in standard errors: ` +
      `${[0, 9, MOST - 1].map(apart).join(", ")}. ${status}`;
    if (!this.repeating) this.say(cell.textContent);
  }
}

/** Squared distance of two vectors. */
function distance(a, b) {
  return a.reduce((total, value, j) => total + (value - b[j]) ** 2, 0);
}
