// The reading beside the map: the selected cell in words and as a number, the row's largest keys, where the head stands.

const weightText = (weight) => decimals(weight, 4);

function cellText({ state, value }) {
  if (state === VALUE) return weightText(value);
  return { [MASKED]: "masked", [REMOVED]: "removed", [NOT_FINITE]: "not finite", [UNKNOWN]: "…" }[state];
}

// "·gave reads ·Mary 0.4120", the line that follows the pointer; `longest` cuts the tokens.
function hoverText(field, { query, key }, cell, longest = Infinity) {
  const [reader, read] = [query, key].map((position) => shortened(field.labels[position], longest));
  if (cell.state === MASKED) return `${reader} cannot read ${read}: masked`;
  if (cell.state === REMOVED) return `${reader} reads ${read}: removed on this scale`;
  return `${reader} reads ${read}  ${cellText(cell)}`;
}

function drawReading(node, field, view, choose) {
  const cell = field.cell(view.layer, view.head, view.query, view.key, view.scale);
  const row = field.row(view.layer, view.head, view.query, view.scale);
  const seen = row.filter(({ state }) => state === VALUE).sort((a, b) => b.value - a.value || a.key - b.key);
  const sum = seen.reduce((total, { value }) => total + value, 0);
  const readable = row.some(({ state }) => state !== MASKED);
  const known = field.has(view.layer, view.head);
  const token = (position) => element("span", { class: "plate" }, tokenText(field.parts[position]));
  const kept = node.getRootNode().activeElement?.dataset?.rank;

  node.replaceChildren(
    element("div", { class: "caption" }, "Reading"),
    element("div", { class: "sentence" }, token(view.query), readable ? " reads " : " reads nothing", readable ? token(view.key) : null),
    readable ? largeNumber(cell, view.scale) : element("div", { class: "note" }, "The mask leaves this position no key."),
    element("div", { class: "caption section" }, `Where position ${view.query} looks`),
    element(
      "div",
      { class: "rows" },
      known ? null : element("div", { class: "note" }, "The exact weights of this layer are on their way."),
      seen.slice(0, 5).map((entry, rank) => keyRow(field, entry, rank, () => choose(entry.key))),
      known ? totalRow("row sum", decimals(sum, 6)) : null,
      known && view.scale !== "raw" ? totalRow("removed on position 0", decimals(field.removed(view.layer, view.head, view.query), 6)) : null,
    ),
  );
  if (kept !== undefined) node.querySelector(`[data-rank="${kept}"]`)?.focus({ preventScroll: true });
}

function largeNumber(cell, scale) {
  const unit = cell.state !== VALUE ? "" : scale === "raw" ? "weight" : "of the rest";
  return element("div", { class: "large", "data-state": cell.state }, element("span", { class: "number" }, cellText(cell)), " ", element("span", { class: "unit" }, unit));
}

function keyRow(field, { key, value }, rank, choose) {
  return element(
    "button",
    { type: "button", class: "row", "data-rank": rank, onclick: choose, title: `read position ${key}, ${field.labels[key]}` },
    element("span", { class: "number position" }, String(key)),
    element("span", { class: "name" }, tokenText(field.parts[key])),
    element("span", { class: "track" }, element("i", { style: `width:${Math.min(1, value) * 100}%` })),
    element("span", { class: "number value" }, decimals(value, 3)),
  );
}

function totalRow(name, text) {
  return element("div", { class: "row total" }, element("span", {}, name), element("span", { class: "number value" }, text));
}

// ---- Rugs: every head a faint tick, this head an orange needle --------------------------------------------------------

const RUG_HEIGHT = 26;

function buildRugs(field) {
  const rugs = field.metrics.map((metric) => {
    const value = element("span", { class: "number measured" });
    const canvas = element("canvas", { role: "img" });
    const node = element("div", { class: "rug", title: metric.definition }, element("div", { class: "rug-name" }, element("span", {}, rugName(metric)), value), canvas);
    return { node, value, canvas, metric };
  });
  const ends = element("div", { class: "rug-ends number", "aria-hidden": "true" }, element("span", {}, "0"), element("span", {}, "1"));
  const node = element("div", { class: "rugs" }, element("div", { class: "caption" }, `Where this head stands among all ${groupDigits(field.layers * field.heads)}`), rugs.map((rug) => rug.node), ends);
  return { node, rugs };
}

// Whatever does not end at 1 says where its axis ends.
const rugName = ({ name, top }) => (top === 1 ? name : `${name}, axis to ${decimals(top, top % 1 ? 1 : 0)}`);

function drawRugs({ rugs }, field, view, width, colours) {
  rugs.forEach(({ value, canvas, metric }, index) => {
    const mine = field.metric(view.layer, view.head, index);
    const undefinedText = field.notFinite(view.layer, view.head) ? "not finite" : metric.undefined;
    value.textContent = Number.isNaN(mine) ? undefinedText : decimals(mine, metric.tokens ? 1 : 3);
    value.classList.toggle("measured", !Number.isNaN(mine));
    canvas.setAttribute("aria-label", `${metric.name} of this head: ${value.textContent}`);
    const context = fitCanvas(canvas, width, RUG_HEIGHT);
    const place = (score) => Math.max(0, Math.min(1, score / metric.top)) * (width - 2) + 1;
    const ticks = new Map(); // as many heads as fall on one pixel darken it
    for (let layer = 0; layer < field.layers; layer++)
      for (let head = 0; head < field.heads; head++) {
        const other = field.metric(layer, head, index);
        if (!Number.isNaN(other)) ticks.set(Math.round(place(other)), (ticks.get(Math.round(place(other))) ?? 0) + 1);
      }
    context.fillStyle = colours.ink;
    for (const [x, count] of ticks) {
      context.globalAlpha = 1 - 0.87 ** count;
      context.fillRect(x - 0.5, 9, 1, 10);
    }
    context.globalAlpha = 1;
    context.fillStyle = colours.rule;
    context.fillRect(0, 21, width, 1);
    if (Number.isNaN(mine)) return;
    context.fillStyle = colours.measured;
    context.fillRect(place(mine) - 1.25, 3, 2.5, 19);
  });
}
