// An ensemble on simulated data: Gaussian rows, a signal of norm 1, members drawn one after the other.

import { leastSquares } from "./least_squares.mjs";
import { Random } from "./random.mjs";
import { groupSize } from "./theory.mjs";

/** The coefficients to be found: of both signs, falling, of norm 1. */
export function signal(p) {
  const raw = Array.from({ length: p }, (_, j) => Math.cos(1.7 * j) * Math.exp((-1.6 * j) / p) + 0.12);
  const norm = Math.hypot(...raw);
  return Float64Array.from(raw, (value) => value / norm);
}

/** A data set: columns of X, and y = X beta + sigma z. */
export function drawData(random, n, beta, sigma) {
  const columns = Array.from(beta, () => Float64Array.from({ length: n }, () => random.normal()));
  const y = Float64Array.from({ length: n }, () => sigma * random.normal());
  columns.forEach((column, j) => column.forEach((value, i) => (y[i] += value * beta[j])));
  return { columns, y };
}

/** Subsets of `drawn` out of `total`, one after the other; balanced ones share a permutation within their group. */
class SubsetStream {
  constructor(random, total, drawn, balanced) {
    Object.assign(this, { random, total, drawn, balanced, used: 0, order: [] });
    this.group = balanced ? groupSize(total, drawn) : 1;
  }

  next() {
    const { total, drawn } = this;
    const at = this.used++ % this.group;
    if (at === 0) this.order = this.random.permutation(total);
    if (drawn <= total - drawn || !this.balanced) return sorted(this.order.slice(at * drawn, (at + 1) * drawn));
    const out = total - drawn;
    return sorted([...this.order.slice(0, at * out), ...this.order.slice((at + 1) * out)]);
  }
}

function sorted(numbers) {
  return numbers.sort((a, b) => a - b);
}

/** Members of an ensemble on one data set, and the average of those drawn so far. */
export class Ensemble {
  /**
   * @param {{n: number, m: number, tau: number, sigma: number, design: string}} settings
   * @param {Float64Array} beta
   * @param {number} seed of the data; members have a stream of their own, so that sizes do not change the data
   */
  constructor(settings, beta, seed) {
    const { n, m, tau, sigma, design } = settings, balanced = design === "balanced";
    const members = new Random(seed ^ 0x5bd1e995);
    this.beta = beta;
    this.data = drawData(new Random(seed), n, beta, sigma);
    this.columns = new SubsetStream(members, beta.length, m, balanced);
    this.rows = new SubsetStream(members, n, tau, balanced && tau < n);
    this.sum = new Float64Array(beta.length);
    this.size = 0;
  }

  /** Draw, fit and add one member. */
  add() {
    const columns = this.columns.next(), rows = this.rows.next();
    const pick = (values) => Float64Array.from(rows, (i) => values[i]);
    const fitted = leastSquares(columns.map((j) => pick(this.data.columns[j])), pick(this.data.y));
    const coefficients = new Float64Array(this.beta.length);
    columns.forEach((j, i) => (coefficients[j] = fitted[i]));
    coefficients.forEach((value, j) => (this.sum[j] += value));
    this.size += 1;
    return { columns, rows, coefficients };
  }

  mean() {
    return this.sum.map((value) => value / Math.max(1, this.size));
  }

  /** Risk of the average so far: identity covariance, so the squared distance to the signal. */
  risk() {
    let total = 0;
    for (let j = 0; j < this.beta.length; j++) total += (this.sum[j] / this.size - this.beta[j]) ** 2;
    return total;
  }
}

/** Mean and standard error, over data sets, of the risk of the first 1, 2, ... members. */
export class Repetition {
  constructor(settings, beta, seed, most) {
    Object.assign(this, { settings, beta, seed, most, trials: 0 });
    this.mean = new Float64Array(most);
    this.squares = new Float64Array(most);
  }

  /** One more data set (updating after Welford). */
  add() {
    this.trials += 1;
    const ensemble = new Ensemble(this.settings, this.beta, Math.imul(this.seed + 1, 0x2c1b3c6d) + this.trials);
    for (let i = 0; i < this.most; i++) {
      ensemble.add();
      const risk = ensemble.risk(), before = risk - this.mean[i];
      this.mean[i] += before / this.trials;
      this.squares[i] += before * (risk - this.mean[i]);
    }
  }

  standardError() {
    return this.squares.map((value) => Math.sqrt(value / Math.max(1, this.trials - 1) / this.trials));
  }
}
