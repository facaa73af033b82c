// Lines between tokens: a query on the left reads a key on the right. Weights of one head, of the heads that share a KV head, or of
// those that were pinned; no more lines than MAX_LINES, the largest, and how many and how large is said.

const MAX_LINES = 5000;
const MAX_PINS = 12;
const LINE_HEADS = 12;
const FAINTEST = [0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5];
const LINE_LEVELS = 16; // of width and opacity, by the square root of the weight
const LINES_HEAD = 26; // room for the names of the two columns
const LINES_LABEL_SIGNS = 14;
const NUMBERED = 8; // lines of one token that carry their number
const CATEGORIES = 8; // colours that stay apart; what follows is grey

const lineColours = (host) =>
  getComputedStyle(host)
    .getPropertyValue("--st-chart-categorical-colors")
    .split(/,(?![^(]*\))/)
    .map((colour) => colour.trim());

// Pinned heads, in the address as "layer.head,layer.head": no head twice, none that the model lacks, at most MAX_PINS.
function pinsOf(field, { pins }) {
  const named = String(pins ?? "").split(",").filter((text) => /^\d{1,5}\.\d{1,5}$/.test(text));
  return [...new Set(named)]
    .map((text) => text.split(".").map(Number))
    .filter(([layer, head]) => layer < field.layers && head < field.heads)
    .slice(0, MAX_PINS)
    .map(([layer, head]) => ({ layer, head }));
}

const pinName = ({ layer, head }) => `${layer}.${head}`;

// What the view becomes when a head is pinned, or is no longer: the figure shows the pinned ones.
function togglePin(field, view, head) {
  const pins = pinsOf(field, view).map(pinName);
  const name = pinName(head);
  const left = pins.filter((other) => other !== name);
  if (left.length === pins.length && pins.length === MAX_PINS) return {};
  const now = left.length === pins.length ? [...pins, name] : left;
  return { pins: now.join(","), of: now.length ? "pinned" : "head", figure: "lines" };
}

// The heads whose lines are drawn: {layer, head, colour, known}; known is false where the payload lacks the exact weights.
function lineHeads(field, view, colours) {
  const pins = view.of === "pinned" ? pinsOf(field, view) : [];
  const wanted = pins.length ? pins : view.of === "group" ? groupHeads(field, view) : [{ layer: view.layer, head: view.head }];
  return wanted.map(({ layer, head }, index) => ({
    layer,
    head,
    colour: index < CATEGORIES ? colours.series[index] : colours.ink3,
    known: field.has(layer, head),
  }));
}

// The query heads that read the same keys and values, or LINE_HEADS of them with the selected one among them.
function groupHeads(field, { layer, head }) {
  const first = Math.floor(head / field.groupSize) * field.groupSize;
  const start = first + Math.floor((head - first) / LINE_HEADS) * LINE_HEADS;
  const count = Math.min(LINE_HEADS, first + field.groupSize - start);
  return Array.from({ length: count }, (_, k) => ({ layer, head: start + k }));
}

// The largest weights from `view.faint` up, of all tokens or of one: `token` is {side: "query" | "key", position} or null.
//   of: how many such weights there are; lines: [{index, query, key, value}], at most MAX_LINES; smallest: the least drawn
function collectLines(field, heads, view, token) {
  const values = new Float64Array(field.tokens);
  const states = new Uint8Array(field.tokens);
  function each(hear) {
    heads.forEach(({ layer, head, known }, index) => {
      if (!known) return;
      const [from, to] = token?.side === "query" ? [token.position, token.position + 1] : [0, field.tokens];
      const [first, last] = token?.side === "key" ? [token.position, token.position + 1] : [0, field.tokens];
      for (let query = from; query < to; query++) {
        field.readRow(layer, head, query, view.scale, values, states);
        for (let key = first; key < last; key++) if (states[key] === VALUE && values[key] >= view.faint && values[key] > 0) hear(index, query, key, values[key]);
      }
    });
  }
  const bins = new Uint32Array(4096);
  const bin = (value) => Math.min(4095, Math.floor(4096 * Math.sqrt(Math.min(1, value))));
  let of = 0;
  each((_, __, ___, value) => {
    of++;
    bins[bin(value)]++;
  });
  let least = 4095;
  for (let many = bins[4095]; least > 0 && many + bins[least - 1] <= MAX_LINES; ) many += bins[--least];
  const lines = [];
  let smallest = Infinity;
  each((index, query, key, value) => {
    if (bin(value) < least || lines.length === MAX_LINES) return;
    lines.push({ index, query, key, value });
    smallest = Math.min(smallest, value);
  });
  return { of, lines, smallest: lines.length ? smallest : null };
}

function linesLayout(field, width, narrow, measure) {
  const font = narrow ? 10 : 11.5;
  const pitch = Math.max(0.4, Math.min(18, 900 / field.tokens));
  const every = pitch >= 11 ? 1 : [2, 5, 10, 20, 50, 100, 200, 500].find((step) => step * pitch >= 12) ?? 1000;
  const position = every > 1 ? measure([`${field.tokens} `], font) : 0;
  const margin = Math.min(width * 0.36, 12 + Math.ceil(position + measure(field.labelsWithin(LINES_LABEL_SIGNS), font)));
  return {
    font,
    every,
    width,
    height: LINES_HEAD + Math.ceil(pitch * field.tokens) + 4,
    pitch,
    left: margin,
    right: width - margin,
    y: (token) => LINES_HEAD + (token + 0.5) * pitch,
  };
}

// The token under a point, on the side that is nearer its column; null between the two and above.
function tokenAt(field, layout, x, y) {
  const position = Math.floor((y - LINES_HEAD) / layout.pitch);
  if (position < 0 || position >= field.tokens) return null;
  const reach = Math.max(12, (layout.right - layout.left) / 6);
  if (x <= layout.left + reach) return { side: "query", position };
  return x >= layout.right - reach ? { side: "key", position } : null;
}

const lineLevel = (value) => Math.max(1, Math.ceil(LINE_LEVELS * Math.sqrt(Math.min(1, value))));
const levelAlpha = (level) => 0.06 + (0.86 * level) / LINE_LEVELS;
const levelWidth = (level) => 0.5 + (2 * level) / LINE_LEVELS;

// Draws, and returns what was drawn: what `collectLines` found, in the order in which it was stroked, faint ones first.
function drawLines(canvas, field, view, layout, heads, token, colours) {
  const found = collectLines(field, heads, view, token);
  const context = fitCanvas(canvas, layout.width, layout.height);
  const buckets = new Map();
  for (const line of found.lines) {
    const name = lineLevel(line.value) * heads.length + line.index;
    if (!buckets.has(name)) buckets.set(name, []);
    buckets.get(name).push(line);
  }
  const drawn = [];
  for (const name of [...buckets.keys()].sort((a, b) => a - b)) {
    const [level, index] = [Math.floor(name / heads.length), name % heads.length];
    context.strokeStyle = heads[index].colour;
    context.globalAlpha = levelAlpha(level);
    context.lineWidth = levelWidth(level);
    context.beginPath();
    for (const line of buckets.get(name)) {
      context.moveTo(layout.left + 4, layout.y(line.query));
      context.lineTo(layout.right - 4, layout.y(line.key));
      drawn.push(line);
    }
    context.stroke();
  }
  context.globalAlpha = 1;
  drawTokenColumns(context, field, view, layout, token, colours);
  if (token) drawLineNumbers(context, field, layout, heads, token, drawn, colours);
  return { ...found, lines: drawn };
}

function drawTokenColumns(context, field, view, layout, token, colours) {
  context.textBaseline = "middle";
  for (const [side, x, align, selected] of [
    ["query", layout.left - 4, "right", view.query],
    ["key", layout.right + 4, "left", view.key],
  ]) {
    context.font = `12px ${colours.sans}`;
    context.fillStyle = colours.ink;
    context.textAlign = align === "right" ? "left" : "right"; // over the lines, where there is always room
    context.fillText(side === "query" ? "query (reads) →" : "→ key (is read)", side === "query" ? layout.left + 4 : layout.right - 4, 8);
    context.textAlign = align;
    const marked = token?.side === side ? token.position : selected;
    for (let position = 0; position < field.tokens; position++) {
      const chosen = position === marked;
      const near = layout.every > 1 && Math.abs(position - marked) * layout.pitch < 12;
      if (!chosen && (position % layout.every !== 0 || near)) continue;
      context.font = `${chosen ? "500 " : ""}${layout.font}px ${colours.mono}`;
      context.fillStyle = chosen ? colours.accent : colours.ink2;
      const text = shortened(field.labels[position], LINES_LABEL_SIGNS);
      context.fillText(layout.every > 1 ? (side === "query" ? `${position} ${text}` : `${text} ${position}`) : text, x, layout.y(position));
    }
  }
}

// The largest lines of the one token, each with its weight at its other end, in the colour of its head.
function drawLineNumbers(context, field, layout, heads, token, lines, colours) {
  const other = token.side === "query" ? "key" : "query";
  const x = token.side === "query" ? layout.right - 8 : layout.left + 8;
  const taken = [];
  context.font = `500 11px ${colours.sans}`;
  context.textAlign = token.side === "query" ? "right" : "left";
  context.lineWidth = 3;
  for (const { index, value, ...line } of lines.toSorted((a, b) => b.value - a.value).slice(0, 4 * NUMBERED)) {
    const y = layout.y(line[other]);
    if (taken.length === NUMBERED || taken.some((place) => Math.abs(place - y) < 12)) continue;
    taken.push(y);
    const text = heads.length > 1 ? `${decimals(value, 3)} (${heads[index].layer}.${heads[index].head})` : decimals(value, 3);
    context.strokeStyle = colours.background;
    context.strokeText(text, x, y);
    context.fillStyle = heads[index].colour;
    context.fillText(text, x, y);
  }
}

// How many lines are drawn and the smallest weight among them; of which heads none can be.
function linesNotes(field, view, heads, { of, lines, smallest }, token) {
  const unit = view.scale === "raw" ? "weight" : "share";
  const from = view.faint ? `${unit}s from ${view.faint} up` : `${unit}s above 0`;
  const whose = token ? ` of ${token.side} ${token.position}, ${shortened(field.labels[token.position], 20)}` : "";
  const notes = [];
  if (!lines.length) notes.push(`no ${unit}${whose} is ${view.faint ? `at least ${view.faint}` : "above 0"}`);
  else {
    const all = lines.length === of;
    const many = all ? `all ${groupDigits(of)}` : `the ${groupDigits(lines.length)} largest of ${groupDigits(of)}`;
    notes.push(`drawn: ${many} ${from}${whose}; the smallest is ${decimals(smallest, 4)}`);
  }
  notes.push(`thicker and darker by the square root of the ${unit}; point at a token to see its lines alone, click to hold it`);
  const absent = heads.filter(({ known }) => !known);
  if (absent.length) notes.push(`not here: ${absent.map(({ layer, head }) => `layer ${layer}, head ${head}`).join("; ")}. At this length the page holds one layer exactly, or one head: choose it to draw it`);
  return notes;
}
