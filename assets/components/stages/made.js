// Beside the matrix: one cell as a number, and what made it.

const LISTED = 6;
const exact = (x) => (Number.isFinite(x) && x !== 0 && Math.abs(x) < 1e-4 ? scientific(x, 4) : decimals(x, 5));

function drawMade(page, row, column) {
  const { field, nodes, view } = page;
  const stage = field.byKey[view.stage];
  const head = page.head;
  const { state, value } = field.cell(stage.key, head, row, column);
  const shown = state === MASKED ? "masked" : state === NOT_FINITE ? notFinite(value) : exact(value);
  nodes.made.replaceChildren(
    element("div", { class: "caption" }, page.pointed ? "Under the pointer" : "The chosen cell"),
    element("div", { class: "sentence" }, ...whichCell(field, stage, head, row, column)),
    element("div", { class: "large number", "data-value": state === VALUE ? value : "" }, shown),
    ...(MAKERS[stage.key] ?? (() => []))(page, row, column),
  );
}

const plate = (field, row) => element("span", { class: "plate" }, tokenText(field.parts[field.positions[row]]));

function whichCell(field, stage, head, row, column) {
  const at = field.positions[row];
  if (stage.columns === "key") return [plate(field, row), ` ${at} and `, plate(field, column), ` ${field.positions[column]}`];
  const dim = stage.columns === "model" ? field.dimOf(stage.key, head, row, column) : column;
  return [plate(field, row), ` ${at}, dim ${dim}`];
}

const line = (name, value, kind = "") => element("div", { class: `line ${kind}` }, element("span", {}, name), element("span", { class: "number" }, typeof value === "number" ? exact(value) : value));

// How each stage's cell came about, from the numbers of the stages before it.
const MAKERS = {
  normed: ({ field }, row) => field.meta.block > 1 ? [] : [line("root mean square of the row", lengthOf(field, "normed", 0, row) / Math.sqrt(field.columns("normed")))],
};

function lengthOf(field, key, head, row) {
  let sum = 0;
  for (let dim = 0; dim < field.columns(key); dim++) sum += field.at(key, head, row, dim) ** 2;
  return Math.sqrt(sum);
}

for (const key of ["q", "k", "v"])
  MAKERS[key] = (page, row) => [line(`length of this row of ${key}`, lengthOf(page.field, key, page.head, row))];

for (const [key, before] of [["rot_q", "q"], ["rot_k", "k"]])
  MAKERS[key] = (page, row, column) => {
    const { field, head } = page;
    const { start, dims } = field.meta.rotary;
    const inside = column >= start && column < start + dims;
    if (!inside) return [line(`${before} before`, field.at(before, head, row, column)), element("p", { class: "note" }, "RoPE does not turn this dim.")];
    const low = start + ((column - start) % (dims / 2));
    const high = low + dims / 2;
    const pair = (name) => `(${exact(field.at(name, head, row, low))}, ${exact(field.at(name, head, row, high))})`;
    return [
      element("p", { class: "note" }, `Dims ${low} and ${high} are one pair, turned by an angle that grows with position ${field.positions[row]}.`),
      line("before", pair(before)),
      line("after", pair(key)),
      line("length of the row before", lengthOf(field, before, head, row)),
      line("length of the row after", lengthOf(field, key, head, row)),
    ];
  };

MAKERS.raw = (page, row, column) => {
  const { field, head } = page;
  const { terms, sum } = productsAt(field, "raw", head, row, column);
  const names = field.byKey.rot_q ? ["q′", "k′"] : ["q", "k"];
  const count = terms.length;
  const inOrder = [...terms].sort((a, b) => a.index - b.index);
  return [
    element("div", { class: "strips" },
      strip(page, `${names[0]} of ${field.label(row)}`, inOrder.map(({ a }) => a)),
      strip(page, `${names[1]} of ${field.label(column)}`, inOrder.map(({ b }) => b)),
      strip(page, "products", inOrder.map(({ product }) => product))),
    productTable(["dim", names[0], names[1], "product"], terms, ({ index }) => [String(index)], count, sum, field.at("raw", head, row, column)),
  ];
};

MAKERS.scaled = (page, row, column) => {
  const { field, head } = page;
  return [line("score", field.at("raw", head, row, column)), line("× scale", field.meta.scale)];
};

MAKERS.masked = (page, row, column) => {
  const { field, head } = page;
  const scaled = field.at("scaled", head, row, column);
  if (!field.allowed(row, column)) return [line("scaled score", scaled), line("+ mask", "\u2212∞"), element("p", { class: "note" }, "This key may not be read: its weight is 0 whatever its score.")];
  return [line("scaled score", scaled), line("+ mask and bias", field.at("masked", head, row, column) - scaled)];
};

MAKERS.softmax = (page, row, column) => {
  const { field, head } = page;
  const sum = line("sum of this row", decimals(field.number("row_sums", head, row), 6), "total");
  if (!field.allowed(row, column)) return [sum];
  const score = field.at("masked", head, row, column);
  const peak = field.number("peaks", head, row);
  const denominator = field.number("denominators", head, row);
  return [
    line("score", score),
    line("largest of the row", peak),
    line("exp(score − largest)", Math.exp(score - peak)),
    line(field.meta.sinks ? "Σ of the row, without the sink" : "÷ Σ of the row", denominator),
    sum,
  ];
};

MAKERS.z = (page, row, column) => {
  const { field, head } = page;
  const { terms, sum } = productsAt(field, "z", head, row, column);
  const count = terms.filter(({ index }) => field.allowed(row, index)).length;
  const name = ({ index }) => [tokenText(field.parts[field.positions[index]]), ` ${field.positions[index]}`];
  const cut = field.rows < field.tokens;
  return [productTable(["key", "weight", "v", "product"], terms, name, count, sum, field.at("z", head, row, column), cut)];
};

MAKERS.write = ({ field, head }, row) => [field.meta.block > 1 ? "" : line("length of what is written", lengthOf(field, "write", head, row)), element("p", { class: "note" }, `A row of z through the output projection: ${field.columns("z")} numbers become ${groupDigits(field.meta.d_model)}.`)];

MAKERS.attn_out = (page, row, column) => {
  const { field, head } = page;
  if (field.meta.block > 1) return [];
  const own = field.at("write", head, row, column);
  return [line(`head ${page.view.head} alone`, own), line("all other heads and bias", field.at("attn_out", 0, row, column) - own)];
};

MAKERS.resid_mid = (page, row, column) => {
  const { field } = page;
  const values = (name) => Array.from({ length: field.columns(name) }, (_, dim) => field.at(name, 0, row, dim));
  const limit = field.byKey.resid_mid.limit;
  const sign = (text) => element("div", { class: "sign", "aria-hidden": "true" }, text);
  return [
    element("div", { class: "strips add" },
      strip(page, "x, before", values("resid_pre"), limit), sign("+"),
      strip(page, "a, written by attention", values("added"), limit), sign("="),
      strip(page, "x′, after", values("resid_mid"), limit)),
    line("x", field.at("resid_pre", 0, row, column)),
    line("a", field.at("added", 0, row, column)),
    line("x′", field.at("resid_mid", 0, row, column), "total"),
  ];
};

// A row of numbers in the signed ramp, as wide as the panel; several numbers on one pixel show the largest.
function strip(page, name, values, limit = Math.max(...values.map(Math.abs).filter(Number.isFinite), 0)) {
  const width = page.room.side;
  const canvas = element("canvas", { role: "img", "aria-label": `${name}: ${values.length} numbers, colours from ${signedText(-limit)} to ${signedText(limit)}` });
  const context = fitCanvas(canvas, width, 14);
  const ratio = pixelRatio();
  const cells = Math.min(values.length, Math.floor(width * ratio));
  for (let cell = 0; cell < cells; cell++) {
    const part = values.slice(Math.floor((cell * values.length) / cells), Math.floor(((cell + 1) * values.length) / cells));
    const value = part.reduce((best, x) => (Math.abs(x) > Math.abs(best) ? x : best), 0);
    const [from, to] = [cell, cell + 1].map((edge) => Math.round((edge * width * ratio) / cells) / ratio);
    context.fillStyle = page.ramps.signed.css[signedIndex(value, limit)];
    context.fillRect(from, 0, to - from, 14);
  }
  return element("figure", {}, element("figcaption", {}, element("span", {}, name), element("span", { class: "number" }, `±${signedText(limit)}`)), canvas);
}

// The largest terms, the rest together, their sum and the cell that it is.
function productTable(headings, terms, name, count, sum, value, cut = false) {
  const listed = terms.slice(0, Math.min(LISTED, count));
  const rest = sum - listed.reduce((total, { product }) => total + product, 0);
  const row = (cells, kind = "") => element("tr", { class: kind }, cells.map((cell, index) => element(index ? "td" : "th", index ? {} : { scope: "row" }, cell)));
  const others = count - listed.length;
  return element(
    "table",
    { class: "products" },
    element("thead", {}, element("tr", {}, headings.map((text) => element("th", { scope: "col" }, text)))),
    element(
      "tbody",
      {},
      listed.map((term) => row([element("span", {}, ...name(term)), signedText(term.a), signedText(term.b), decimals(term.product, 4)])),
      others > 0 ? row([`${groupDigits(others)} more`, "", "", decimals(rest, 4)]) : null,
      row(["sum", "", "", element("span", { "data-sum": sum }, exact(sum))], "total"),
      cut ? row(["keys not shown", "", "", exact(value - sum)]) : null,
      row(["the cell", "", "", element("span", { "data-cell": value }, exact(value))], "total"),
    ),
  );
}
