// The formulas of olsen.theory that the page needs, number by number the same: tests compare both to 1e-10.
// Letters: gamma = p/n, alpha = m/p, eta = tau/n, k members, noise sigma, scale mu; the signal has norm 1.
// Risks are noise-free excess risks.

const EPSILON = 2 ** -52;

// ---- pairs: how two kinds of pairs become an ensemble ------------------------------------------------------------

/** Mean over all ordered pairs of k members; an infinite member does not reach the infinite ensemble. */
export function meanOfPairs(own, other, k) {
  if (k === Infinity) return other;
  return own === Infinity ? own : other + (own - other) / k;
}

/** Risk of mu times an estimator whose mean product with the signal is `shrinkage`. */
export function rescale(risk, shrinkage, mu) {
  if (mu === 0) return 1;
  return risk === Infinity ? risk : mu ** 2 * risk + (1 - mu) ** 2 + 2 * mu * (1 - mu) * (1 - shrinkage);
}

/** size**2 times a unit term; no noise stays no noise where the unit is infinite. */
function timesSquare(size, unit) {
  return unit === Infinity ? (size > 0 ? Infinity : 0) : size ** 2 * unit;
}

/** Share of the k**2 ordered pairs whose two different members lie in one group. */
function sameGroupShare(k, group) {
  if (k === Infinity) return 0;
  const rest = k % group;
  return ((k - rest) * (group - 1) + rest * (rest - 1)) / k ** 2;
}

/** Ordered pairs that lie in one group of both kinds. */
function commonPairs(k, first, second) {
  let pairs = 0;
  for (let start = 0; start < k; ) {
    const end = Math.min(k, (Math.floor(start / first) + 1) * first, (Math.floor(start / second) + 1) * second);
    pairs += (end - start) * (end - start - 1);
    start = end;
  }
  return pairs;
}

function groupShares(k, first, second) {
  const both = first > 1 && second > 1 && k !== Infinity ? commonPairs(k, first, second) / k ** 2 : 0;
  return [sameGroupShare(k, first) - both, sameGroupShare(k, second) - both, both];
}

// ---- limits: n and p large --------------------------------------------------------------------------------------

/** eta - alpha gamma, exactly zero where only rounding keeps it from the peak. */
function gapOf(alpha, gamma, eta) {
  const gap = eta - alpha * gamma;
  return Math.abs(gap) <= 4 * EPSILON * eta ? 0 : gap;
}

/** Shrinkage, and bias and unit variance of one member, of members with the penalty lam = lambda / n > 0. */
function penalisedMember(alpha, gamma, eta, lam) {
  const excess = alpha * gamma + lam - eta, root = Math.sqrt(excess ** 2 + 4 * eta * lam);
  const effective = excess > 0 ? (excess + root) / (2 * eta) : (2 * lam) / (root - excess);
  const kept = 1 / (1 + effective), room = kept * (effective + lam / (eta * effective)); // 1 - alpha gamma kept^2 / eta
  const bias = (1 - alpha + alpha * (1 - kept) ** 2) / room;
  return { shrinkage: alpha * kept, bias, variance: (1 - room) / room };
}

/** Mean product of a large ensemble with the signal: delta. */
export function shrinkageOf(alpha, gamma, { eta = 1, lam = 0 } = {}) {
  return lam > 0 ? penalisedMember(alpha, gamma, eta, lam).shrinkage : Math.min(alpha, eta / gamma);
}

export function limitingBias(alpha, gamma, { k = Infinity, eta = 1, lam = 0 } = {}) {
  const delta = shrinkageOf(alpha, gamma, { eta, lam });
  const pair = delta < 1 ? (1 - delta) ** 2 / (1 - delta ** 2 * gamma) : 0;
  return meanOfPairs(lam > 0 ? penalisedMember(alpha, gamma, eta, lam).bias : biasOfMember(alpha, gamma, eta), pair, k);
}

function biasOfMember(alpha, gamma, eta) {
  const gap = gapOf(alpha, gamma, eta), leftOut = alpha < 1 ? (eta * (1 - alpha)) / Math.abs(gap) : 0;
  return gap > 0 ? leftOut : 1 - eta / gamma + leftOut;
}

export function limitingVariance(alpha, gamma, sigma, { k = Infinity, eta = 1, lam = 0 } = {}) {
  const gap = gapOf(alpha, gamma, eta), signal = shrinkageOf(alpha, gamma, { eta, lam }) ** 2 * gamma;
  const plain = (gap > 0 ? alpha * gamma : eta) / Math.abs(gap);
  const member = lam > 0 ? penalisedMember(alpha, gamma, eta, lam).variance : plain;
  return timesSquare(sigma, meanOfPairs(member, signal / (1 - signal), k));
}

export function limitingRisk(alpha, gamma, sigma, { k = Infinity, eta = 1, mu = 1, lam = 0 } = {}) {
  const risk = limitingBias(alpha, gamma, { k, eta, lam }) + limitingVariance(alpha, gamma, sigma, { k, eta, lam });
  return mu === 1 ? risk : rescale(risk, shrinkageOf(alpha, gamma, { eta, lam }), mu);
}

/** The share of columns with the lowest limiting risk, members staying below the peak. */
export function optimalAlpha(gamma, sigma, { k = Infinity, eta = 1 } = {}) {
  if (k !== Infinity) return boundedMinimum(gamma, sigma, k, eta);
  const noise = sigma ** 2;
  const discriminant = (gamma - 1) ** 2 + 2 * gamma * noise * (gamma + 1) + (gamma * noise) ** 2;
  return Math.min(2 / (gamma * (noise + 1) + 1 + Math.sqrt(discriminant)), eta / gamma);
}

/** A grid, then bisection of the slope between the neighbours of its best point. */
function boundedMinimum(gamma, sigma, k, eta, points = 128) {
  const top = Math.min(1, eta / gamma);
  let best = Infinity, at = 0;
  for (let i = 0; i <= points; i++) {
    const risk = limitingRisk((i / points) * top, gamma, sigma, { k, eta });
    if (risk < best) [best, at] = [risk, i / points];
  }
  let low = Math.max(at - 1 / points, 0), high = Math.min(at + 1 / points, 1);
  for (let step = 0; step < 60; step++) {
    const middle = (low + high) / 2;
    if (slope(middle * top, gamma, sigma, k, eta) > 0) high = middle;
    else low = middle;
  }
  return (low === 0 ? 0 : high) * top;
}

function slope(alpha, gamma, sigma, k, eta) {
  const pair = (2 * (alpha * (gamma * (sigma ** 2 + 1) + 1) - alpha ** 2 * gamma - 1)) / (1 - alpha ** 2 * gamma) ** 2;
  return meanOfPairs((eta * (gamma * (1 + sigma ** 2) - eta)) / (eta - alpha * gamma) ** 2, pair, k);
}

/** The lowest limiting risk of ridge regression, over all penalties. */
export function optimalRidgeRisk(gamma, sigma) {
  const x = (gamma - 1) / gamma - sigma ** 2, root = Math.sqrt(x ** 2 + 4 * sigma ** 2);
  if (x > 0) return (x + root) / 2;
  return root === 0 ? 0 : (2 * sigma ** 2) / (root - x);
}

/** The scale with the lowest risk, for an estimator of this risk and shrinkage. */
export function bestScale(risk, shrinkage) {
  return shrinkage / (risk + 2 * shrinkage - 1);
}

// ---- finite n and p ---------------------------------------------------------------------------------------------

/** Values and weights of the number of marked items among `drawn` of `total`, near the mean where all the mass is. */
export function hypergeometric(total, marked, drawn) {
  const mean = (marked * drawn) / total;
  const variance = (mean * (1 - marked / total) * (total - drawn)) / Math.max(total - 1, 1);
  const reach = 12 * Math.sqrt(variance) + 45;
  const low = Math.max(0, marked + drawn - total, Math.trunc(mean - reach));
  const high = Math.min(marked, drawn, Math.trunc(mean + reach) + 1);
  const values = [low], logs = [0];
  for (let x = low; x < high; x++) {
    const ratio = ((marked - x) * (drawn - x)) / ((x + 1) * (total - marked - drawn + x + 1));
    values.push(x + 1);
    logs.push(logs[logs.length - 1] + Math.log(ratio));
  }
  const most = logs.reduce((a, b) => Math.max(a, b));
  return normalised(values, logs.map((value) => Math.exp(value - most)));
}

function normalised(values, weights) {
  const sum = weights.reduce((a, b) => a + b, 0);
  return { values, weights: weights.map((weight) => weight / sum) };
}

/** Every s-th term of a long smooth distribution: the trapezoidal rule. */
function thin({ values, weights }, most = 100) {
  const step = Math.max(1, Math.floor(values.length / most));
  const kept = (_, i) => i % step === 0;
  return normalised(values.filter(kept), weights.filter(kept));
}

/** How much two members with `a` common columns and `t` common rows of `tau` each amplify what is not in them. */
function inflation(a, tau, t) {
  return (a * t) / (tau ** 2 - (a + 1) * t);
}

const NOTHING = 1e-22; // a weight that no sum of ours can feel

function weighted({ values, weights }, f) {
  let total = 0;
  for (let i = 0; i < values.length; i++) if (weights[i] > NOTHING) total += weights[i] * f(values[i]);
  return total;
}

let lastRows = { key: "" };

/** The distribution of the rows that two members share, and the inflation under it for each number of common columns. */
function sharedRows(n, tau) {
  const key = `${n} ${tau}`;
  if (lastRows.key !== key) {
    const shared = thin(hypergeometric(n, tau, tau)), known = []; // the same for all sizes of members
    lastRows = { key, shared, inflation: (a) => (known[a] ??= weighted(shared, (t) => inflation(a, tau, t))) };
  }
  return lastRows;
}

/** Bias (unit signal) and variance (unit noise) of a pair: averages over the distribution of common columns. */
function pairTerms(p, m, columnLaw, v) {
  return {
    bias: weighted(columnLaw, (a) => ((p - 2 * m + a) / p) * (1 + v(a))),
    variance: weighted(columnLaw, v),
  };
}

/** What the risk of members of m columns and tau rows is made of, whatever sigma, k and mu are. */
export function finiteTerms(n, p, m, tau, design) {
  if (Math.abs(m - tau) <= 1) {
    const own = { bias: m < p ? Infinity : 0, variance: Infinity };
    return { own, other: own, grouped: [], groups: [1, 1], shrinkage: m / p };
  }
  return m > tau ? minimumNormTerms(n, p, m, tau, design) : leastSquaresTerms(n, p, m, tau, design);
}

function leastSquaresTerms(n, p, m, tau, design) {
  const alone = m / (tau - m - 1), own = { bias: ((p - m) / p) * (1 + alone), variance: alone };
  const columns = hypergeometric(p, m, m), least = { values: [Math.max(0, 2 * m - p)], weights: [1] };
  const fewest = (a) => inflation(a, tau, Math.max(0, 2 * tau - n));
  const any = tau === n ? fewest : sharedRows(n, tau).inflation;
  const other = pairTerms(p, m, columns, any);
  if (design !== "balanced") return { own, other, grouped: [], groups: [1, 1], shrinkage: m / p };
  const grouped = [pairTerms(p, m, least, any), pairTerms(p, m, columns, fewest), pairTerms(p, m, least, fewest)];
  return { own, other, grouped, groups: [groupSize(p, m), tau < n ? groupSize(n, tau) : 1], shrinkage: m / p };
}

/** Members of one balanced group: disjoint, or leaving out disjoint parts. */
export function groupSize(total, drawn) {
  return Math.floor(total / Math.max(1, Math.min(drawn, total - drawn)));
}

function minimumNormTerms(n, p, m, tau, design) {
  const own = { bias: 1 - tau / p + ((1 - m / p) * tau) / (m - tau - 1), variance: tau / (m - tau - 1) };
  const a = m ** 2 / p, q = 1 - (2 * tau) / p + (tau ** 2 * a) / (m ** 2 * p);
  const pair = (t) => ({ bias: q / (1 - (t * a) / m ** 2), variance: (t * a) / (m ** 2 - (t + 1) * a) });
  const rows = sharedRows(n, tau).shared;
  const other = { bias: weighted(rows, (t) => pair(t).bias), variance: weighted(rows, (t) => pair(t).variance) };
  if (design !== "balanced") return { own, other, grouped: [], groups: [1, 1], shrinkage: tau / p };
  const folds = pair(Math.max(0, 2 * tau - n)), none = { bias: 0, variance: 0 };
  return { own, other, grouped: [none, folds, none], groups: [1, groupSize(n, tau)], shrinkage: tau / p };
}

function combined(terms, name, k) {
  const { own, other, grouped, groups } = terms;
  let mean = meanOfPairs(own[name], other[name], k);
  if (grouped.length === 0) return mean;
  groupShares(k, ...groups).forEach((share, i) => {
    if (share > 0) mean += share * (grouped[i][name] - other[name]);
  });
  return mean;
}

/** Expected bias and variance of k members from `finiteTerms`, before any scaling. */
export function combineTerms(terms, sigma, k) {
  return { bias: combined(terms, "bias", k), variance: timesSquare(sigma, combined(terms, "variance", k)) };
}

/** olsen.theory.expected_risk below the peak, minimum_norm_risk above it. */
export function expectedRisk(n, p, m, sigma, { k, tau = n, design = "independent", mu = 1 }) {
  const terms = finiteTerms(n, p, m, tau, design), { bias, variance } = combineTerms(terms, sigma, k);
  return rescale(bias + variance, terms.shrinkage, mu);
}
