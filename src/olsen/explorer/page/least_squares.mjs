// Least squares by Householder reflections, on the data themselves: no Gram matrix, no squared condition number.

const DEPENDENT = 1e-10; // what columns before it leave of a column, in units of its length

/**
 * Coefficients of y on the columns of A: a b with the least |A b - y|, for more rows than columns. A column that depends
 * on those before it has coefficient zero.
 *
 * @param {Float64Array[]} columns of A, each with as many rows as y; overwritten
 * @param {Float64Array} y overwritten
 * @returns {Float64Array}
 */
export function leastSquares(columns, y) {
  const m = columns.length, diagonal = new Float64Array(m);
  const lengths = columns.map((column) => Math.sqrt(column.reduce((sum, value) => sum + value * value, 0)));
  for (let j = 0; j < m; j++) {
    diagonal[j] = reflector(columns[j], j);
    for (let l = j + 1; l < m; l++) reflect(columns[j], j, columns[l]);
    reflect(columns[j], j, y);
  }
  const b = new Float64Array(m);
  for (let j = m - 1; j >= 0; j--) {
    let rest = y[j];
    for (let l = j + 1; l < m; l++) rest -= columns[l][j] * b[l];
    b[j] = Math.abs(diagonal[j]) > DEPENDENT * lengths[j] ? rest / diagonal[j] : 0;
  }
  return b;
}

/** Turn the part of a column from row j on into the vector v of I - 2 v v' / v'v, and return what it leaves at j. */
function reflector(column, j) {
  let square = 0;
  for (let i = j; i < column.length; i++) square += column[i] * column[i];
  const left = column[j] > 0 ? -Math.sqrt(square) : Math.sqrt(square);
  column[j] -= left;
  return left;
}

function reflect(v, j, target) {
  let square = 0, product = 0;
  for (let i = j; i < v.length; i++) {
    square += v[i] * v[i];
    product += v[i] * target[i];
  }
  const factor = square > 0 ? (2 * product) / square : 0;
  for (let i = j; i < v.length; i++) target[i] -= factor * v[i];
}
