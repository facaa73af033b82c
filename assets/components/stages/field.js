// The matrices of a payload behind one way of asking: what is in this cell of this stage? Layout: figures/stages.py.
// Rows and keys are counted as they are shown; `positions` says which token each is.

const VALUE = 0;
const MASKED = 1;
const NOT_FINITE = 2;
const OF_MAPS = new Set(["masked", "softmax"]); // where a key that may not be read is masked

function readStages({ meta, arrays }) {
  const named = Object.fromEntries(meta.names.map((name, index) => [name, arrays[index]]));
  const rows = meta.positions.length;
  const stages = meta.stages;
  const byKey = Object.fromEntries(stages.map((stage) => [stage.key, stage]));
  const labels = meta.tokens.map(flatToken);
  const rowOf = new Map(meta.positions.map((position, row) => [position, row]));

  // `head` counts from the first head of the payload
  function matrix(key, head) {
    const { data, shape } = named[key];
    const columns = shape[shape.length - 1];
    return { data, columns, start: shape.length === 3 ? head * rows * columns : 0 };
  }
  function at(key, head, row, column) {
    const { data, columns, start } = matrix(key, head);
    return data[start + row * columns + column];
  }
  function cell(key, head, row, column) {
    if (OF_MAPS.has(key) && !named.allowed.data[row * rows + column]) return { state: MASKED, value: null };
    const value = at(key, head, row, column);
    return { state: Number.isFinite(value) ? VALUE : NOT_FINITE, value };
  }
  // Which dim of the model a column of a wide matrix shows.
  function dimOf(key, head, row, column) {
    const dims = named[`${key}_dims`];
    if (!dims || dims.shape[0] === 0) return column;
    const columns = dims.shape[dims.shape.length - 1];
    return dims.data[(dims.shape.length === 3 ? head * rows * columns : 0) + row * columns + column];
  }
  const number = (key, head, row) => named[key].data[head * rows + row];
  return {
    meta, stages, byKey, rows, labels, matrix, at, cell, dimOf, number,
    parts: meta.tokens,
    tokens: meta.tokens.length,
    positions: meta.positions,
    rowOf: (position) => rowOf.get(position),
    label: (row) => labels[meta.positions[row]],
    columns: (key) => named[key].shape[named[key].shape.length - 1],
    allowed: (row, column) => named.allowed.data[row * rows + column] === 1,
    holdsHead: (layer, head) => layer === meta.layer && head >= meta.first_head && head < meta.first_head + meta.heads,
    top: (head, position) => ({
      key: named.top_key.data[head * meta.tokens.length + position],
      weight: named.top_weight.data[head * meta.tokens.length + position],
    }),
  };
}

// The column of largest magnitude in a row; what is masked or not finite does not count.
function largestColumn(field, key, head, row) {
  let best = 0;
  let size = -1;
  for (let column = 0; column < field.columns(key); column++) {
    const { state, value } = field.cell(key, head, row, column);
    if (state === VALUE && Math.abs(value) > size) [best, size] = [column, Math.abs(value)];
  }
  return best;
}

// The terms of a sum of products, largest magnitude first: [{index, a, b, product}], and their sum in double precision.
function productsOf(count, left, right) {
  const terms = Array.from({ length: count }, (_, index) => ({ index, a: left(index), b: right(index) }));
  for (const term of terms) term.product = term.a * term.b;
  const sum = terms.reduce((total, { product }) => total + product, 0);
  terms.sort((x, y) => Math.abs(y.product) - Math.abs(x.product) || x.index - y.index);
  return { terms, sum };
}

// What made a cell of a stage that is a sum of products; null for the others.
function productsAt(field, key, head, row, column) {
  if (key === "raw") {
    const count = field.columns("rot_q");
    return productsOf(count, (dim) => field.at("rot_q", head, row, dim), (dim) => field.at("rot_k", head, column, dim));
  }
  if (key === "z") {
    const weight = (other) => (field.allowed(row, other) ? field.at("softmax", head, row, other) : 0);
    return productsOf(field.rows, weight, (other) => field.at("v", head, other, column));
  }
  return null;
}

function shortened(text, longest) {
  const signs = [...text];
  return signs.length > longest ? `${signs.slice(0, longest - 1).join("")}…` : text;
}
