// A table of numbers as a field of colour: rows down, columns across, one cell read at a time.

export default function ({ data, parentElement }) {
  const host = parentElement.querySelector(".gb");
  const state = mounted(parentElement, () => ({ row: 0, column: 0, stop: () => {} }));
  state.stop();
  const { meta, arrays } = unpack(data);
  const [rows, columns] = arrays[0].shape;
  const values = arrays[0].data;
  state.row = Math.min(state.row, rows - 1);
  state.column = Math.min(state.column, columns - 1);
  const canvas = element("canvas", { tabindex: 0, role: "application", "aria-roledescription": "map" });
  const title = element("figcaption", {}, meta.title);
  const reading = element("div", { class: "note reading", "aria-live": "polite" });
  const saves = figureSaves(meta.file, () => [canvas], () => heatRows(values, columns, meta), () => themeColours(host), { title: () => meta.title });
  const root = element("figure", { class: "heat" }, title, canvas, reading, saves);
  host.replaceChildren(root);
  let layout = null;

  function draw() {
    const width = Math.floor(root.clientWidth);
    if (!width) return;
    const look = { colours: themeColours(host), ramp: themeRamp(host, meta.kind === "signed" ? "diverging" : "sequential") };
    layout = heatLayout(width, rows, columns, meta);
    const context = fitCanvas(canvas, layout.width, layout.height);
    drawHeat(context, values, rows, columns, meta, layout, look);
    drawHeatAxes(context, rows, columns, meta, layout, look.colours);
    drawHeatBar(context, meta, layout, look);
    drawHeatCell(context, state, layout, look.colours);
    const value = values[state.row * columns + state.column];
    const words = [`${meta.row_word} `, element("b", { class: "number" }, heatLabel(meta, "row", state.row)), `, ${meta.column_word} `];
    reading.replaceChildren(...words, element("b", { class: "number" }, heatLabel(meta, "column", state.column)), ": ", element("b", { class: "number" }, decimals(value, meta.digits)), meta.note ? `. ${meta.note}` : "");
    canvas.setAttribute("aria-label", `${meta.title}; ${reading.textContent}. Arrow keys move.`);
    root.dataset.state = JSON.stringify({ row: state.row, column: state.column });
  }
  function choose(row, column) {
    const next = [Math.max(0, Math.min(rows - 1, row)), Math.max(0, Math.min(columns - 1, column))];
    if (next[0] === state.row && next[1] === state.column) return;
    [state.row, state.column] = next;
    draw();
  }
  const point = (event) => {
    const box = canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - layout.top) / layout.cell_height);
    const column = Math.floor((event.clientX - box.left - layout.left) / layout.cell_width);
    if (row >= 0 && column >= 0 && row < rows && column < columns) choose(row, column);
  };
  canvas.onpointermove = point;
  canvas.onpointerdown = point;
  canvas.onkeydown = (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    choose(state.row + step[0], state.column + step[1]);
  };
  root.values = () => values;
  draw();
  whenFontsLoad(draw);
  state.stop = onWidth(root, draw);
  return () => {
    state.stop();
    unmount(parentElement);
  };
}

// A pooled table has a step: the index of a cell is that of the first of those it stands for.
const heatIndexOf = (meta, axis, index) => (meta[`${axis}_first`] ?? 0) + index * meta[`${axis}_step`];
const heatLabel = (meta, axis, index) => groupDigits(heatIndexOf(meta, axis, index));

// The cells as they are drawn: a row for each row, named by its index.
function heatRows(values, columns, meta) {
  const head = [meta.row_title, ...Array.from({ length: columns }, (_, column) => `${meta.column_title} ${heatIndexOf(meta, "column", column)}`)];
  const rows = Array.from({ length: values.length / columns }, (_, row) => [heatIndexOf(meta, "row", row), ...values.subarray(row * columns, (row + 1) * columns)]);
  return [head, ...rows];
}

function heatLayout(width, rows, columns, meta) {
  const [left, top, bar] = [46, 22, 34];
  const across = Math.max(60, width - left - 2);
  const cell_width = Math.min(meta.square ? 420 / columns : 24, across / columns);
  const cell_height = meta.square ? cell_width : Math.max(1.5, Math.min(18, 300 / rows));
  const [side, down] = [cell_width * columns, cell_height * rows];
  return { left, top, cell_width, cell_height, side, down, width, height: top + down + 22 + bar };
}

const heatIndex = (value, { kind, low, high }) => (kind === "signed" ? signedIndex(value, high || 1) : kind === "root" ? rootIndex(value / (high || 1)) : linearIndex(value, low, high));

// One pixel a cell, then blown up without smoothing: a cell is never smaller than a pixel of the screen.
function drawHeat(context, values, rows, columns, meta, layout, { ramp, colours }) {
  const small = new OffscreenCanvas(columns, rows);
  const pen = small.getContext("2d");
  const image = pen.createImageData(columns, rows);
  const packed = new Uint32Array(image.data.buffer);
  for (let k = 0; k < packed.length; k++) packed[k] = Number.isNaN(values[k]) ? 0 : ramp.packed[heatIndex(values[k], meta)];
  pen.putImageData(image, 0, 0);
  context.fillStyle = statePattern(context, "hatch", colours.rule);
  context.fillRect(layout.left, layout.top, layout.side, layout.down);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, layout.left, layout.top, layout.side, layout.down);
}

function drawHeatAxes(context, rows, columns, meta, layout, colours) {
  const { left, top, side, down, cell_width, cell_height } = layout;
  context.font = `11px ${colours.sans}`;
  context.fillStyle = colours.ink2;
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const row of heatTicks(rows, down, 34)) context.fillText(heatLabel(meta, "row", row), left - 6, top + (row + 0.5) * cell_height);
  context.textAlign = "center";
  for (const column of heatTicks(columns, side, 52)) {
    const text = heatLabel(meta, "column", column);
    const half = context.measureText(text).width / 2;
    context.fillText(text, Math.max(left + half, Math.min(left + side - half, left + (column + 0.5) * cell_width)), top + down + 10);
  }
  context.fillStyle = colours.ink;
  context.font = `11.5px ${colours.sans}`;
  context.textAlign = "left";
  context.fillText(`${meta.column_title} →`, left, 8);
  context.save();
  context.translate(6, top);
  context.rotate(Math.PI / 2);
  context.fillText(`${meta.row_title} →`, 0, 0);
  context.restore();
}

// Every 1, 2, 4, 8 .. cells, so that labels stay at least `room` pixels apart.
function heatTicks(count, pixels, room) {
  let step = 1;
  while ((step * pixels) / count < room) step *= 2;
  return Array.from({ length: Math.ceil(count / step) }, (_, k) => k * step);
}

function drawHeatBar(context, meta, { left, top, down, side }, { ramp, colours }) {
  const y = top + down + 24;
  for (let x = 0; x < side; x++) {
    context.fillStyle = ramp.css[Math.round((255 * x) / Math.max(1, side - 1))];
    context.fillRect(left + x, y, 1.4, 8);
  }
  const low = meta.kind === "signed" ? -meta.high : meta.kind === "root" ? 0 : meta.low;
  const middle = meta.kind === "root" ? 0.25 * meta.high : (low + meta.high) / 2;
  context.font = `11px ${colours.sans}`;
  context.fillStyle = colours.ink2;
  context.textBaseline = "top";
  for (const [share, value] of [[0, low], [0.5, middle], [1, meta.high]]) {
    context.textAlign = share === 0 ? "left" : share === 1 ? "right" : "center";
    context.fillText(significant(value, 2), left + share * side, y + 11);
  }
}

function drawHeatCell(context, { row, column }, { left, top, side, down, cell_width, cell_height }, colours) {
  const [x, y] = [left + column * cell_width, top + row * cell_height];
  context.lineWidth = 1;
  context.strokeStyle = colours.accent;
  context.strokeRect(left - 0.5, y - 0.5, side + 1, cell_height + 1);
  context.strokeRect(x - 0.5, top - 0.5, cell_width + 1, down + 1);
  context.lineWidth = 2;
  context.strokeStyle = colours.ink;
  context.strokeRect(x - 1, y - 1, cell_width + 2, cell_height + 2);
}
