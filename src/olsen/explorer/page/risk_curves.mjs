// What the risk tab shows, as numbers: points and curves for its settings, in the limit or at a given n.

import {
  bestScale, combineTerms, finiteTerms, limitingBias, limitingRisk, limitingVariance, optimalAlpha, rescale, shrinkageOf,
} from "./theory.mjs";

const STEPS = 240; // of a curve over alpha
const MOST_SIZES = 160; // of a curve over whole sizes
const NEAR_PEAK = [0.0005, 0.0015, 0.003, 0.006, 0.012]; // distances at which a curve is looked at besides
const MOST_KEPT = 4000; // terms of finite problems that are remembered

/** Whole numbers for a problem of n rows: columns, columns of a member, rows of a member. */
export function wholeSizes({ gamma, alpha, eta, n }) {
  const p = Math.max(1, Math.round(gamma * n));
  return { n, p, m: Math.min(p, Math.max(1, Math.round(alpha * p))), tau: Math.max(1, Math.round(eta * n)) };
}

const kept = new Map();

function termsOf(n, p, m, tau, design) {
  const key = `${n} ${p} ${m} ${tau} ${design}`;
  if (!kept.has(key)) {
    if (kept.size > MOST_KEPT) kept.clear();
    kept.set(key, finiteTerms(n, p, m, tau, design));
  }
  return kept.get(key);
}

/** Risk, bias and variance, before scaling, and the shrinkage of the mean. */
function unscaled(settings) {
  const { gamma, sigma, alpha, eta, k, size, design, lam = 0 } = settings;
  if (size === "finite") {
    const { n, p, m, tau } = wholeSizes(settings), terms = termsOf(n, p, m, tau, design);
    return { ...combineTerms(terms, sigma, k), shrinkage: terms.shrinkage };
  }
  const options = { k, eta, lam };
  const bias = limitingBias(alpha, gamma, options), variance = limitingVariance(alpha, gamma, sigma, options);
  return { bias, variance, shrinkage: shrinkageOf(alpha, gamma, options) };
}

/** Risk, bias and variance for the settings; the last two are of the scaled average and add up to the first. */
export function pointOf(settings) {
  const { bias, variance, shrinkage } = unscaled(settings), { mu } = settings;
  return {
    risk: rescale(bias + variance, shrinkage, mu),
    bias: rescale(bias, shrinkage, mu),
    variance: mu === 0 ? 0 : mu ** 2 * variance,
  };
}

/** The mu with the lowest risk, other settings staying. */
export function bestMu(settings) {
  const { bias, variance, shrinkage } = unscaled(settings);
  return bestScale(bias + variance, shrinkage);
}

/** Where members turn from least squares to interpolators: as many columns as rows. */
export function peakOf(settings) {
  if (settings.size !== "finite") return settings.eta / settings.gamma;
  const { p, tau } = wholeSizes(settings);
  return tau / p;
}

/** The alphas at which a curve is computed. */
export function alphasOf(settings) {
  if (settings.size === "finite") {
    const { p } = wholeSizes(settings), step = Math.max(1, Math.ceil(p / MOST_SIZES));
    const sizes = Array.from({ length: Math.ceil(p / step) }, (_, i) => Math.min(p, 1 + i * step));
    if (sizes[sizes.length - 1] !== p) sizes.push(p);
    return sizes.map((m) => m / p);
  }
  const peak = peakOf(settings), around = NEAR_PEAK.flatMap((d) => [peak - d, peak + d]).concat(peak);
  const even = Array.from({ length: STEPS + 1 }, (_, i) => i / STEPS);
  const all = new Set([...even, ...around.filter((alpha) => alpha > 0 && alpha < 1)]);
  return [...all].sort((a, b) => a - b);
}

export const MEMBERS = membersOnAxis();

function membersOnAxis() {
  const found = new Set(Array.from({ length: 121 }, (_, i) => Math.round(10 ** (i / 40))));
  return [...found];
}

const MAX_PENALTY = 4; // lambda / n
const PENALTIES = Array.from({ length: 161 }, (_, i) => MAX_PENALTY * (i / 160) ** 2); // close to each other near zero

/** Curves over one letter, "alpha", "k" or "lam" (a penalty of the members, for a very large problem), as arrays. */
export function curvesOver(letter, settings) {
  const xs = { k: MEMBERS, lam: PENALTIES }[letter] ?? alphasOf(settings);
  const points = xs.map((x) => pointOf({ ...settings, [letter]: x }));
  return { xs, ...Object.fromEntries(["risk", "bias", "variance"].map((name) => [name, points.map((p) => p[name])])) };
}

/** The alpha with the lowest risk among members below the peak. */
export function bestAlpha(settings) {
  if (settings.size === "finite") return bestSize(settings);
  const { gamma, sigma, k, eta, mu } = settings;
  if (mu === 1) return optimalAlpha(gamma, sigma, { k, eta });
  const top = Math.min(1, eta / gamma), risk = (share) => limitingRisk(share * top, gamma, sigma, { k, eta, mu });
  return top * lowest(risk, 200);
}

/** The penalty, as lambda / n, with the lowest risk of a very large problem; zero where none helps. */
export function bestPenalty(settings) {
  const penaltyAt = (u) => u / (1 - u), most = 0.999; // all penalties up to a thousand
  const risk = (share) => pointOf({ ...settings, size: "limit", lam: penaltyAt(share * most) }).risk;
  const share = lowest(risk, 200);
  return risk(0) <= risk(share) ? 0 : penaltyAt(share * most);
}

/** Where a function on [0, 1] is lowest: a grid, then golden sections between the neighbours of its best point. */
function lowest(f, points) {
  let best = 0;
  for (let i = 1; i <= points; i++) if (f(i / points) < f(best / points)) best = i;
  let low = Math.max(0, best - 1) / points, high = Math.min(points, best + 1) / points;
  const golden = (Math.sqrt(5) - 1) / 2;
  for (let step = 0; step < 40; step++) {
    const left = high - golden * (high - low), right = low + golden * (high - low);
    if (f(left) <= f(right)) high = right;
    else low = left;
  }
  return (low + high) / 2;
}

/** The best whole size, of all of them: balanced members have risks with several minima. */
function bestSize(settings) {
  const { p, tau } = wholeSizes(settings);
  let best = 1, lowestRisk = Infinity;
  for (let m = 1; m <= Math.min(p, tau - 2); m++) {
    const { risk } = pointOf({ ...settings, alpha: m / p });
    if (risk < lowestRisk) [best, lowestRisk] = [m, risk];
  }
  return best / p;
}
