// One head's map, enlarged: where its cells lie, and their colours and states. Axes and reticle: axes.js.

const LARGEST_CELL = 44;
const LARGEST_MAP = 620; // with its labels
const ZOOMED_CELL = 12;
const GAP_FROM = 11; // cells from this size have a gap of one pixel
const LABEL_SIGNS = 16; // at most
const SPARSE_LABEL_SIGNS = 9; // where a label carries its position as well
const LABEL_FROM = 9; // below this size only some cells have a label

// Where things are, in CSS pixels. `zoom` shows a window of cells large enough to be labelled, around the selected one.
function mapLayout(field, view, width, narrow, measure) {
  const font = narrow ? 9.5 : 11;
  const right = narrow ? 4 : 10;
  const margin = (longest, position) => 34 + Math.ceil(measure([position], font) + measure(field.labelsWithin(longest), font));
  const spaceBeside = (left) => Math.max(LABEL_FROM, Math.min(width, LARGEST_MAP) - left - right);
  const roomy = spaceBeside(margin(LABEL_SIGNS, ""));
  const zooms = field.tokens > Math.floor(roomy / LABEL_FROM);
  const zoomed = zooms && view.zoom === 1;
  const shown = zoomed ? Math.min(field.tokens, Math.floor(roomy / ZOOMED_CELL)) : field.tokens;
  const every = labelEvery(shown, roomy);
  const longest = every > 1 ? SPARSE_LABEL_SIGNS : LABEL_SIGNS
  const left = margin(longest, every > 1 ? `${field.tokens} ` : "");
  const space = spaceBeside(left);
  const ratio = pixelRatio();
  const block = Math.max(1, Math.ceil(shown / (space * ratio)));
  const cells = Math.ceil(shown / block);
  const exactSize = Math.min(LARGEST_CELL * ratio, (space * ratio) / cells);
  const whole = Math.floor(exactSize);
  const size = whole * cells >= 0.8 * exactSize * cells ? whole : exactSize;
  const start = (position) => Math.max(0, Math.min(field.tokens - shown, position - (shown >> 1)));
  return {
    font,
    longest,
    left,
    top: left,
    zooms,
    zoomed,
    every,
    block,
    cells,
    firstQuery: zoomed ? start(view.query) : 0,
    firstKey: zoomed ? start(view.key) : 0,
    shown,
    size: size / ratio,
    side: Math.round(size * cells) / ratio,
    width: Math.max(left + Math.round(size * cells) / ratio + right, left + 236),
    height: left + Math.max(Math.round(size * cells) / ratio, 96) + 6, // room for the name of the axis beside one cell
    edge: (index) => Math.round(size * index) / ratio, // always on a device pixel
  };
}

// How many cells lie between two labels: 1 where each has room, else a round number.
function labelEvery(cells, space) {
  if (space / cells >= LABEL_FROM) return 1;
  return [2, 5, 10, 20, 50, 100, 200, 500].find((step) => (space / cells) * step >= 15) ?? 1000;
}

// The place of a position among the drawn cells, or null outside the window.
const cellIndex = (layout, first, position) => {
  const index = Math.floor((position - first) / layout.block);
  return position >= first && index < layout.cells ? index : null;
};

// The query and key under a point, or null outside the map. In a pooled cell: its first one.
function cellAt(field, layout, x, y) {
  const index = (offset) => {
    for (let cell = 0; cell < layout.cells; cell++) if (offset >= layout.edge(cell) && offset < layout.edge(cell + 1)) return cell;
    return null;
  };
  const row = index(y - layout.top);
  const column = index(x - layout.left);
  if (row === null || column === null) return null;
  return { query: layout.firstQuery + row * layout.block, key: layout.firstKey + column * layout.block };
}

// What each drawn cell shows: the maximum of its block; NaN or infinity anywhere in a block shows.
function shownCells(field, view, layout) {
  const { cells, block } = layout;
  const values = new Float64Array(cells * cells).fill(-1);
  const states = new Uint8Array(cells * cells).fill(MASKED);
  const rowValues = new Float64Array(field.tokens);
  const rowStates = new Uint8Array(field.tokens);
  for (let row = 0; row < layout.shown; row++) {
    field.readRow(view.layer, view.head, layout.firstQuery + row, view.scale, rowValues, rowStates);
    const into = Math.floor(row / block) * cells;
    for (let column = 0; column < layout.shown; column++) {
      const cell = into + Math.floor(column / block);
      const state = rowStates[layout.firstKey + column];
      const value = rowValues[layout.firstKey + column];
      if (state === NOT_FINITE) states[cell] = NOT_FINITE;
      else if (state === VALUE && states[cell] !== NOT_FINITE) {
        states[cell] = VALUE;
        values[cell] = Math.max(values[cell], value);
      } else if (state !== MASKED && states[cell] === MASKED) states[cell] = state;
    }
  }
  return { values, states };
}

// The cell of a pooled block that holds its maximum: what a click on it selects.
function largestInBlock(field, view, layout, { query, key }) {
  let best = { query, key, value: -1 };
  const values = new Float64Array(field.tokens);
  const states = new Uint8Array(field.tokens);
  for (let row = query; row < Math.min(field.tokens, query + layout.block); row++) {
    field.readRow(view.layer, view.head, row, view.scale, values, states);
    for (let column = key; column < Math.min(field.tokens, key + layout.block); column++)
      if (states[column] !== MASKED && (states[column] !== VALUE ? 0 : values[column]) > best.value)
        best = { query: row, key: column, value: states[column] === VALUE ? values[column] : 0 };
  }
  return best;
}

function drawMap(canvas, field, view, layout, ramp, colours) {
  const cells = shownCells(field, view, layout);
  const context = fitCanvas(canvas, layout.width, layout.height);
  drawStates(context, layout, cells, colours);
  if (layout.size >= GAP_FROM) drawSquares(context, layout, cells, ramp, colours);
  else drawImage(context, layout, cells, ramp);
  drawMapAxes(context, field, view, layout, colours);
  drawReticle(context, field, view, layout, colours);
  drawMaskName(context, field, layout, cells, colours);
  return cells;
}

// Every state but VALUE, as its pattern on the page: one fill for each run of equal states in a row.
function drawStates(context, layout, { states }, colours) {
  const patterns = {
    [MASKED]: statePattern(context, "hatch", colours.rule),
    [REMOVED]: statePattern(context, "dots", colours.rule),
    [UNKNOWN]: statePattern(context, "dots", colours.rule),
    [NOT_FINITE]: statePattern(context, "cross", colours.bad),
  };
  const { cells, left, top, edge } = layout;
  for (let row = 0; row < cells; row++)
    for (let from = 0, to; from < cells; from = to) {
      const state = states[row * cells + from];
      for (to = from + 1; to < cells && states[row * cells + to] === state; ) to++;
      if (state === VALUE) continue;
      context.fillStyle = patterns[state];
      context.fillRect(left + edge(from), top + edge(row), edge(to) - edge(from), edge(row + 1) - edge(row));
    }
}

function drawSquares(context, layout, { values, states }, ramp, colours) {
  const { cells, left, top, edge } = layout;
  for (let row = 0; row < cells; row++)
    for (let column = 0; column < cells; column++) {
      if (states[row * cells + column] !== VALUE) continue;
      const value = values[row * cells + column];
      const [x, y, size] = [left + edge(column), top + edge(row), edge(column + 1) - edge(column) - 1];
      context.fillStyle = ramp.css[rootIndex(value)];
      context.fillRect(x, y, size, size);
      if (value > 1 || value < 0) drawNotch(context, x + size, y, colours);
    }
}

// A value beyond the colour bar has a corner cut off.
function drawNotch(context, right, top, colours) {
  context.fillStyle = colours.background;
  context.beginPath();
  context.moveTo(right - 6, top);
  context.lineTo(right, top);
  context.lineTo(right, top + 6);
  context.fill();
}

// Small cells go through an image of one pixel a cell, drawn larger without smoothing.
function drawImage(context, layout, { values, states }, ramp) {
  const { cells, left, top, edge } = layout;
  const image = new ImageData(cells, cells);
  const out = new Uint32Array(image.data.buffer);
  for (let cell = 0; cell < out.length; cell++) if (states[cell] === VALUE) out[cell] = ramp.packed[rootIndex(values[cell])];
  const small = new OffscreenCanvas(cells, cells);
  small.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, left, top, edge(cells), edge(cells));
}
