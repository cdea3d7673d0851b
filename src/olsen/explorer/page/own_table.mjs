// A table of the reader's own: parsed, split, and fitted by ensembles of several sizes, all in this page.

import { leastSquares } from "./least_squares.mjs";
import { Random } from "./random.mjs";

export const OWN_MEMBERS = [1, 4, 16, 64];
const MOST_ROWS = 2000;
const MOST_COLUMNS = 300;
const FEWEST_ROWS = 20;
const MOST_FITTED_ROWS = 600; // the others are predicted
const LARGEST_SIZE = 100; // columns of a member
const OTHERWISE = "The command olsen fit reads other tables.";

/** Columns of numbers and the target, of a text with one line for each row and names in the first one. */
export function parseTable(text) {
  const lines = text.split(/\r?\n/).filter((line) => line.trim() !== "");
  if (lines.length < 2) throw new Error("The file has no rows below its first line, which holds the names.");
  const separator = [",", ";", "\t"].reduce((best, one) => (lines[0].split(one).length > lines[0].split(best).length ? one : best));
  const cells = (line) => line.split(separator).map((cell) => cell.trim().replace(/^"(.*)"$/, "$1"));
  const names = cells(lines[0]), rows = lines.slice(1).map(cells);
  if (names.length < 2) throw new Error(`The file has one column; a target needs at least one other. ${OTHERWISE}`);
  if (rows.length < FEWEST_ROWS) throw new Error(`The table has ${rows.length} rows; at least ${FEWEST_ROWS} are needed.`);
  if (rows.length > MOST_ROWS || names.length > MOST_COLUMNS + 1) {
    throw new Error(`The table has ${rows.length} rows and ${names.length} columns; this page takes ${MOST_ROWS} and ${MOST_COLUMNS + 1}. ${OTHERWISE}`);
  }
  const values = rows.map((row, i) => names.map((name, j) => {
    const cell = row[j] ?? "", value = cell === "" ? NaN : Number(cell);
    if (!Number.isFinite(value)) throw new Error(`Row ${i + 1}, column ${name}: “${cell.slice(0, 40)}” is not a number. ${OTHERWISE}`);
    return value;
  }));
  const named = names.findIndex((name) => /^(target|y)$/i.test(name)), target = named < 0 ? names.length - 1 : named;
  const column = (j) => Float64Array.from(values, (row) => row[j]);
  return {
    target: names[target],
    columns: names.map((_, j) => j).filter((j) => j !== target).map(column),
    y: column(target),
  };
}

/** Rows to fit, two of three and at most MOST_FITTED_ROWS, and rows to predict. */
export function splitRows(n) {
  const order = new Random(1).permutation(n), fitted = Math.min(MOST_FITTED_ROWS, Math.round((2 * n) / 3));
  return { fitted: order.slice(0, fitted), predicted: order.slice(fitted) };
}

/** Columns that vary among the fitted rows, standardised by them, and the target less its mean there. */
export function standardised({ columns, y }, { fitted, predicted }) {
  const mean = (values) => fitted.reduce((sum, i) => sum + values[i], 0) / fitted.length;
  const parts = [], centre = mean(y);
  for (const values of columns) {
    const middle = mean(values);
    const spread = Math.sqrt(fitted.reduce((sum, i) => sum + (values[i] - middle) ** 2, 0) / fitted.length);
    if (!(spread > 1e-12 * Math.abs(middle))) continue;
    const of = (rows) => Float64Array.from(rows, (i) => (values[i] - middle) / spread);
    parts.push({ fitted: of(fitted), predicted: of(predicted) });
  }
  const targets = (rows) => Float64Array.from(rows, (i) => y[i] - centre);
  return { parts, fitted: targets(fitted), predicted: targets(predicted) };
}

/** About ten sizes of members in equal ratios, clear of the number of fitted rows. */
export function ownSizes(p, nFitted) {
  const most = Math.max(1, Math.min(p, LARGEST_SIZE, Math.floor(0.85 * (nFitted - 1))));
  const sizes = Array.from({ length: 10 }, (_, i) => Math.round(most ** (i / 9)));
  return [...new Set(sizes)];
}

/** Errors on the predicted rows of the first 1, 4, 16 and 64 members with m random columns. */
export function errorsOfSize({ parts, fitted, predicted }, m) {
  const random = new Random(m), total = new Float64Array(predicted.length), errors = [];
  for (let member = 1; member <= OWN_MEMBERS.at(-1); member++) {
    const chosen = random.permutation(parts.length).slice(0, m);
    const b = leastSquares(chosen.map((j) => parts[j].fitted.slice()), fitted.slice());
    chosen.forEach((j, c) => parts[j].predicted.forEach((value, i) => (total[i] += value * b[c])));
    if (OWN_MEMBERS.includes(member)) errors.push(rootMeanSquare(predicted.map((value, i) => value - total[i] / member)));
  }
  return errors;
}

export function rootMeanSquare(values) {
  return Math.sqrt(values.reduce((sum, value) => sum + value * value, 0) / values.length);
}
