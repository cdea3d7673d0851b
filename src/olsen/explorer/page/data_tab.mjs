// The third tab: soil spectra, fitted beforehand for each pair of size and number of members.

import { Chart, shown } from "./chart.mjs";
import { announcer, nearestOf, oneOf, slider } from "./controls.mjs";
import { listenToOwnTables } from "./own_table_view.mjs";
import { SOIL_MEMBERS, SOIL_SIZES } from "./state.mjs";

const STRETCHED = [-5, -2, -1, 0, 0.5, 1, 2, 5, 10, 15].map((value) => ({ value, text: String(value) }));

export function createDataTab(root, update) {
  listenToOwnTables(root);
  return new DataTab(root, update, JSON.parse(document.getElementById("soil").textContent));
}

class DataTab {
  constructor(root, update, soil) {
    const find = (id) => root.querySelector(`#${id}`);
    Object.assign(this, { find, soil, say: announcer(find("data-said")) });
    this.observed = soil.observed.map((value) => value * soil.unit);
    this.wavelength = soil.fits[0].effect.map((_, j) => soil.wavelength[0] + j * soil.wavelength[1]);
    const make = (id, letter, title, values, tell) => {
      const read = (text) => nearestOf(values, Number(text === "inf" ? Infinity : text)); // of those that were fitted
      return slider(find("data-letters"), { id, letter, title, scale: oneOf(values), read }, tell);
    };
    this.m = make("size-of-members", "m", "wavelengths in a member", SOIL_SIZES, (m) => update({ m }));
    this.k = make("number-of-members", "k", "members", SOIL_MEMBERS, (k) => update({ k }));
    const chart = (id, label, height, pick) => new Chart(find(id), { label, height, pick });
    this.errors = chart("error-chart", "Error on new soils against the size of members", 290, (m) => update({ m }));
    this.profile = chart("profile-chart", "Coefficients over wavelength", 290);
    this.scatter = chart("scatter-chart", "Predicted against measured carbon", 400);
  }

  fit(m, k) {
    return this.soil.fits.find((one) => one.m === m && one.k === k);
  }

  show({ m, k }) {
    const fit = this.fit(m, k), { rmse, coverage, width } = fit, summary = this.find("data-summary");
    this.m(m, "of 700");
    this.k(k);
    this.drawErrors(fit);
    this.drawProfile(fit);
    this.drawScatter(fit);
    Object.assign(summary.dataset, { rmse, coverage, width });
    const held = (100 * coverage).toFixed(0);
    summary.textContent =
      `Error on ${this.observed.length} soils that were not fitted: ${shown(rmse)} g per 100 g; ridge regression, ` +
      `tuned by leave-one-out, has ${shown(this.soil.ridge)}. The 90 % intervals hold ${held} % ` +
      `of them and are ${shown(width, 2)} wide on average.`;
    this.say(summary.textContent);
  }

  drawErrors({ m, k, rmse }) {
    const curve = (members) => SOIL_SIZES.map((size) => this.fit(size, members).rmse), mine = curve(k);
    const narrow = this.find("error-chart").clientWidth < 480; // 320 and 440 would run into each other
    const ticks = SOIL_SIZES.map((value) => ({ value, text: narrow && value === 320 ? "" : String(value) }));
    this.errors.draw({
      x: { low: 4.5, high: 500, log: true, label: "wavelengths in a member, m", ticks },
      y: { low: 0.6, high: 1.8, label: "error on new soils, g per 100 g" },
      marks: (c) =>
        [
          c.level(this.soil.ridge, "ridge", "ridge", "left"),
          ...SOIL_MEMBERS.filter((one) => one !== k).map((one) => c.line(SOIL_SIZES, curve(one), "others")),
          c.line(SOIL_SIZES, mine, "risk"),
          ...SOIL_SIZES.map((size, i) => c.dot(size, mine[i], "risk", 3)),
          c.dot(m, rmse, "risk here", 6),
        ].join(""),
      reads: {
        xs: SOIL_SIZES,
        at: SOIL_SIZES.indexOf(m),
        words: (i) => `m = ${SOIL_SIZES[i]}: ${shown(mine[i])}`,
        dots: (i) => [[mine[i], "risk"]],
      },
    });
  }

  /** The axis is one for all numbers of members, so that one sees coefficients shrink. */
  drawProfile({ m, effect: steps, scale }) {
    const effect = steps.map((value) => value * scale), sameSize = this.soil.fits.filter((one) => one.m === m);
    const top = roundUp(Math.max(...sameSize.map((one) => one.scale * Math.max(...one.effect.map(Math.abs)))));
    const values = [-top, -top / 10, 0, top / 10, top];
    const ticks = values.map((value) => ({ value, text: String(Number(value.toFixed(2))) }));
    this.profile.draw({
      x: { low: 1100, high: 2500, label: "wavelength, nm" },
      y: { low: -top, high: top, bent: top / 50, ticks, label: "g per 100 g for one standard deviation" },
      marks: (c) => c.level(0, "axis", "") + c.line(this.wavelength, effect, "risk thin"),
      reads: {
        xs: this.wavelength,
        at: 350,
        words: (i) => `${this.wavelength[i]} nm: ${shown(effect[i])}`,
        dots: (i) => [[effect[i], "risk"]],
      },
    });
  }

  drawScatter(fit) {
    const { observed } = this, { unit } = this.soil, carbon = (steps) => steps.map((value) => value * unit);
    const predicted = carbon(fit.predicted), lower = carbon(fit.lower), upper = carbon(fit.upper);
    const missed = (i) => (lower[i] <= observed[i] && observed[i] <= upper[i] ? "" : " missed");
    const interval = (i) => `(${shown(lower[i], 1)} to ${shown(upper[i], 1)})`;
    this.scatter.draw({
      x: { low: 0, high: 16, bent: 1, ticks: STRETCHED.slice(3), label: "measured carbon, g per 100 g" },
      y: { low: -5, high: 18, bent: 1, ticks: STRETCHED, label: "predicted, with its 90 % interval" },
      marks: (c) =>
        [
          ...observed.map((x, i) => c.line([x, x], [lower[i], upper[i]], `stick${missed(i)}`)),
          c.line([0, 0.5, 1, 2, 4, 8, 16], [0, 0.5, 1, 2, 4, 8, 16], "diagonal"),
          ...observed.map((x, i) => c.dot(x, predicted[i], `soil${missed(i)}`, 2.6)),
        ].join(""),
      reads: {
        xs: observed,
        ys: predicted,
        at: 0,
        words: (i) => `measured ${shown(observed[i], 2)}, predicted ${shown(predicted[i], 2)} ${interval(i)}`,
        dots: (i) => [[predicted[i], "risk"], [lower[i], "end"], [upper[i], "end"]],
      },
    });
  }
}

/** The next of 1, 2, 5, 10, 20, ... */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 5, 10].find((one) => one * power >= value);
}
