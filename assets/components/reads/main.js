// The attention of one step: the row of its query in every head of every layer, and one head's row in numbers.

const READS_HINT = "Point at a cell to read it, click it to pick its head, or walk with the arrow keys.";
const ORDERS = [
  ["layer", "layer and head"],
  ["entropy", "entropy"],
  ["distance", "mean distance"],
  ["first", "weight on position 0"],
];

export default function ({ data, parentElement, setStateValue }) {
  const host = parentElement.querySelector(".gb");
  const reads = readReads(data);
  const colours = themeColours(host);
  const ramp = themeRamp(host);
  const state = mounted(parentElement, () => startReads(reads));
  state.stop?.();
  state.cell = null;
  if (state.layer >= reads.layers || (state.layer === null && reads.layers * reads.heads > READS.mostRows)) state.layer = reads.layers - 1;
  if (state.picked >= reads.layers * reads.heads) state.picked = reads.start;

  const cursor = stepCursor(host, reads.url, reads, (answer) => setStateValue("cursor", answer));
  const parts = readsElements(host, cursor.node);
  parts.left.append(figureSaves(`attention-of-step-${reads.step}`, () => [[parts.axis, parts.field], parts.scale], () => readsTable(reads), colours, { title: () => `Attention of step ${reads.step}` }));
  let [layout, rows] = [null, []];

  function draw() {
    const width = parts.left.clientWidth;
    if (!width) return;
    rows = readsRows(reads, state);
    layout = readsLayout(reads, rows, width, longestName(reads, colours));
    drawReads(parts.field, parts.axis, reads, layout, rows, state, colours, ramp);
    const read = state.cell ? cellWeight(reads, layout, rows[state.cell.row], state.cell.column) : NaN;
    drawReadsScale(parts.scale, read, colours, ramp);
    parts.reading.replaceChildren(...(state.cell ? cellInWords(reads, layout, rows[state.cell.row], state.cell.column) : [READS_HINT]));
    parts.notes.replaceChildren(...readsNotes(reads, layout).map((note) => element("div", { class: "note" }, note)));
    parts.field.setAttribute("aria-label", `attention of step ${reads.step}: ${rows.length} heads by ${reads.positions} positions; arrow keys read the cells`);
  }

  function drawPanel() {
    parts.panel.replaceChildren(...headPanel(reads, layout, state.picked).filter(Boolean));
  }

  function drawChoices() {
    parts.order.replaceChildren(element("span", { class: "caption" }, "Order"), buttonRow("order of the heads", ORDERS, state.order, (order) => choose({ order })));
    const all = reads.layers * reads.heads <= READS.mostRows;
    const range = element("input", { type: "range", min: all ? -1 : 0, max: reads.layers - 1, step: 1, "aria-label": "layer shown" });
    range.value = state.layer ?? -1;
    const name = element("span", { class: "number" }, state.layer === null ? "all" : `layer ${state.layer}`);
    range.setAttribute("aria-valuetext", name.textContent);
    range.oninput = () => {
      state.layer = Number(range.value) < 0 ? null : Number(range.value);
      name.textContent = state.layer === null ? "all" : `layer ${state.layer}`;
      range.setAttribute("aria-valuetext", name.textContent);
      state.cell = null;
      draw();
    };
    parts.layers.replaceChildren(element("label", { class: "step-cursor" }, element("span", { class: "caption" }, "Layers"), name, range));
  }

  function choose(difference) {
    Object.assign(state, difference, { cell: null });
    drawChoices();
    draw();
  }

  function pick(index) {
    if (index === state.picked) return;
    state.picked = index;
    const { layer, head } = headOf(reads, index);
    viewToUrl({ layer, head });
    drawPanel();
  }

  function readCell(cell, picks = false) {
    const inside = cell && cell.row >= 0 && cell.row < rows.length && cell.column >= 0 && cell.column < layout.count;
    if (cell && picks && !inside) return;
    state.cell = inside ? cell : null;
    if (inside && picks) pick(rows[cell.row]);
    draw();
  }

  const under = (event) => {
    const box = parts.field.getBoundingClientRect();
    return { row: Math.floor((event.clientY - box.top - layout.top) / layout.row), column: Math.floor((event.clientX - box.left) / layout.column) };
  };
  parts.field.onpointermove = (event) => {
    const cell = under(event);
    if (cell.row !== state.cell?.row || cell.column !== state.cell?.column) readCell(cell);
  };
  parts.field.onpointerleave = () => readCell(null);
  parts.field.onblur = () => readCell(null);
  parts.field.onclick = (event) => readCell(under(event), true);
  parts.field.onkeydown = (event) => {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const from = state.cell ?? { row: rows.indexOf(state.picked) - move[0], column: layout.count - 1 - move[1] };
    readCell({ row: from.row + move[0], column: from.column + move[1] }, true);
  };

  drawChoices();
  draw();
  drawPanel();
  whenFontsLoad(draw);
  const stops = [onWidth(host, draw), cursor.stop];
  stops.push(onView("layer", (layer) => follow({ layer: Number(layer) })), onView("head", (head) => follow({ head: Number(head) })));
  function follow(difference) {
    const { layer, head } = { ...headOf(reads, state.picked), ...difference };
    if (!(layer >= 0 && layer < reads.layers && head >= 0 && head < reads.heads)) return;
    if (layer * reads.heads + head === state.picked) return;
    state.picked = layer * reads.heads + head;
    draw();
    drawPanel();
  }
  state.stop = () => stops.forEach((stop) => stop());
  return () => {
    state.stop();
    unmount(parentElement);
  };
}

function readReads(data) {
  const { meta, arrays } = unpack(data);
  const [weights, scores] = arrays;
  return { ...meta, columns: weights.shape[2], weights: weights.data, scores: scores.data, labels: meta.pieces.map(flatToken) };
}

// At first the head of the address, else the payload's; all layers in their order.
function startReads(reads) {
  const { layer, head } = viewFromUrl(["layer", "head"]);
  const given = [layer, head].map((text) => (/^\d{1,4}$/.test(text ?? "") ? Number(text) : NaN));
  const there = given[0] < reads.layers && given[1] < reads.heads;
  return { layer: null, order: "layer", picked: there ? given[0] * reads.heads + given[1] : reads.start, cell: null, stop: null };
}

function readsElements(host, cursor) {
  const nodes = {
    order: element("div", { class: "order" }),
    layers: element("div", { class: "layers" }),
    reading: element("div", { class: "note reading", "aria-live": "polite" }),
    axis: element("canvas", { class: "axis", "aria-hidden": "true" }),
    field: element("canvas", { class: "field", tabindex: 0, role: "application", "aria-roledescription": "attention of one step" }),
    scale: element("canvas", { role: "img", "aria-label": "colour bar: weights from 0 to 1, colour by the square root" }),
    notes: element("div", { class: "notes" }),
    panel: element("div", { class: "panel", "aria-live": "polite" }),
  };
  nodes.left = element(
    "div",
    { class: "left" },
    nodes.reading,
    element("div", { class: "grid" }, nodes.axis, nodes.field),
    element("div", { class: "scale" }, nodes.scale, element("span", { class: "note" }, "weight, colour by its square root")),
    nodes.notes,
  );
  host.replaceChildren(
    element("div", { class: "controls" }, cursor, nodes.layers, nodes.order),
    element("div", { class: "body" }, nodes.left, nodes.panel),
  );
  return nodes;
}

function readsNotes(reads, layout) {
  const notes = [];
  if (layout.factor > 1) notes.push(`Each cell is the largest weight of ${layout.factor} positions.`);
  if (reads.gaps) notes.push("Hatched: out of the layer’s window, which is a state and not a small weight.");
  return notes;
}

// The query's weights in every head: a row for each position it may read, or for each run of positions that came pooled.
function readsTable(reads) {
  const table = [["layer", "head", "position", ...(reads.pooled > 1 ? ["to position"] : ["token"]), reads.pooled > 1 ? "largest weight" : "weight"]];
  for (let index = 0; index < reads.layers * reads.heads; index++)
    for (let column = 0; column < reads.columns; column++) {
      const weight = reads.weights[index * reads.columns + column];
      const from = column * reads.pooled;
      const where = reads.pooled > 1 ? Math.min(reads.positions, from + reads.pooled) - 1 : tokenCell(reads.labels[from]);
      if (!Number.isNaN(weight)) table.push([Math.floor(index / reads.heads), index % reads.heads, from, where, weight]);
    }
  return table;
}

function longestName(reads, colours) {
  const pen = new OffscreenCanvas(1, 1).getContext("2d");
  pen.font = `500 11px ${colours.mono}`;
  return 10 + Math.ceil(reads.labels.reduce((widest, label) => Math.max(widest, pen.measureText(label).width), 0));
}
