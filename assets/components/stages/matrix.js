// One matrix on a canvas. Its rows keep their height and place through all stages, so that the eye follows one matrix.

const LARGEST_CELL = 28;
const SMALLEST_CELL = 4;
const TALLEST = 560;
const GAP_FROM = 11;
const LABEL_FROM = 10;
const LABEL_SIGNS = 12;
const BAR_HEIGHT = 44;
const WEIGHT_TICKS = [0, 0.01, 0.05, 0.1, 0.25, 0.5, 1];

// Where things are, in CSS pixels. `bare`: no labels round it, as one of several side by side.
function matrixLayout(field, key, room, { narrow, bare, measure }) {
  const ratio = pixelRatio();
  const font = narrow ? 9.5 : 11;
  const names = bare ? 0 : Math.ceil(measure([...new Set(field.labels.map((text) => shortened(text, LABEL_SIGNS)))], font));
  const long = field.tokens > 20;
  const number = long ? 8 + Math.ceil(measure([String(field.tokens)], font)) : 0;
  const left = bare ? 0 : 30 + names + number;
  const right = bare ? 2 : 62;
  const top = bare ? 2 : 24 + names + number;
  const space = Math.max(60, room - left - right);
  const cell = Math.floor(Math.min(LARGEST_CELL, TALLEST / field.rows, space / field.rows));
  const height = bare ? Math.max(2, Math.min(cell, LARGEST_CELL)) : Math.max(SMALLEST_CELL, cell);
  const columns = field.columns(key);
  const wide = Math.max(space, field.byKey[key]?.columns === "key" ? height * columns : 0);
  const block = Math.max(1, Math.ceil(columns / (wide * ratio)));
  const cells = Math.ceil(columns / block);
  const fitting = Math.min(height, wide / cells) * ratio; // device pixels; whole ones, unless that would leave much room empty
  const width = (Math.floor(fitting) >= 0.8 * fitting ? Math.floor(fitting) : fitting) / ratio;
  return { left, top, right, font, long, block, cells, cellWidth: width, cellHeight: height, side: width * cells, tall: height * field.rows, space,
    width: Math.max(left + width * cells + right, bare ? 0 : Math.min(room, left + 236)), height: top + (bare ? height * field.rows + 2 : Math.max(92, height * field.rows) + 6) }; // room for the axis's name beside one row
}

// The row and column under a point, or null; in a pooled cell the column of largest magnitude.
function cellUnder(field, key, head, layout, x, y) {
  const row = Math.floor((y - layout.top) / layout.cellHeight);
  const index = Math.floor((x - layout.left) / layout.cellWidth);
  if (row < 0 || row >= field.rows || index < 0 || index >= layout.cells) return null;
  return { row, column: largestOfBlock(field, key, head, row, index, layout.block) };
}

function largestOfBlock(field, key, head, row, index, block) {
  let best = index * block;
  let size = -1;
  for (let column = best; column < Math.min(field.columns(key), (index + 1) * block); column++) {
    const { state, value } = field.cell(key, head, row, column);
    if (state === NOT_FINITE) return column;
    if (state === VALUE && Math.abs(value) > size) [best, size] = [column, Math.abs(value)];
  }
  return best;
}

const shadeOf = (stage, value, limit) => (stage.field === "weight" ? rootIndex(value) : signedIndex(value, limit));

function drawMatrix(canvas, field, key, head, layout, ramps, colours) {
  const context = fitCanvas(canvas, layout.width, layout.height);
  const stage = field.byKey[key];
  const ramp = ramps[stage.field];
  const { left, top, cells, block, cellWidth, cellHeight } = layout;
  const image = new ImageData(cells, field.rows);
  const out = new Uint32Array(image.data.buffer);
  const patterns = { [MASKED]: statePattern(context, "hatch", colours.rule), [NOT_FINITE]: statePattern(context, "cross", colours.bad) };
  const gaps = cellWidth >= GAP_FROM && cellHeight >= GAP_FROM;
  let beyond = 0;
  let broken = 0;
  for (let row = 0; row < field.rows; row++)
    for (let index = 0; index < cells; index++) {
      const column = block === 1 ? index : largestOfBlock(field, key, head, row, index, block);
      const { state, value } = field.cell(key, head, row, column);
      const [x, y] = [left + index * cellWidth, top + row * cellHeight];
      if (state !== VALUE) {
        context.fillStyle = patterns[state];
        context.fillRect(x, y, cellWidth, cellHeight);
        if (state === NOT_FINITE) broken++;
        continue;
      }
      const outside = stage.limit !== null && Math.abs(value) > stage.limit * (1 + 1e-6);
      if (outside) beyond++;
      const shade = shadeOf(stage, value, stage.limit);
      if (!gaps) out[row * cells + index] = ramp.packed[shade];
      else {
        context.fillStyle = ramp.css[shade];
        context.fillRect(x, y, cellWidth - 1, cellHeight - 1);
      }
    }
  if (!gaps) {
    const small = new OffscreenCanvas(cells, field.rows);
    small.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, left, top, Math.round(layout.side), layout.tall);
  }
  return { context, beyond, broken };
}

// The followed row in accent (a query) or ink (a key); the chosen cell in ink with a halo of the page.
function drawChosen(context, layout, { row, column, ink }, colours) {
  const { left, top, side, cellWidth, cellHeight, block } = layout;
  if (row === undefined) return;
  const y = top + row * cellHeight;
  context.lineWidth = 1;
  context.strokeStyle = ink ? colours.ink : colours.accent;
  context.strokeRect(left - 0.5, y - 0.5, side + 1, cellHeight + 1);
  if (column === null) return;
  const x = left + Math.floor(column / block) * cellWidth;
  context.lineWidth = 2.5;
  context.strokeStyle = colours.background;
  context.strokeRect(x - 1.5, y - 1.5, cellWidth + 3, cellHeight + 3);
  context.lineWidth = 2;
  context.strokeStyle = colours.ink;
  context.strokeRect(x - 1, y - 1, cellWidth + 2, cellHeight + 2);
}

// Where positions are left out, an ink line that sticks out on both sides.
function drawSeam(context, field, stage, { left, top, side, tall, cellWidth, cellHeight }, colours) {
  const cut = field.positions.findIndex((position, row) => position !== row);
  if (cut < 0) return;
  context.fillStyle = colours.ink;
  context.fillRect(left - 4, top + cut * cellHeight - 0.5, side + 8, 1);
  if (stage.columns === "key") context.fillRect(left + cut * cellWidth - 0.5, top - 4, 1, tall + 8);
}

// Token names down the left, tokens or dims along the top, the sums of rows on the right of the weights.
function drawLabels(context, field, key, head, layout, chosen, colours) {
  const stage = field.byKey[key];
  const { left, top, font, side, cellWidth, cellHeight, cells, block, long } = layout;
  const named = (row) => (long ? `${field.positions[row]} ` : "") + shortened(field.label(row), LABEL_SIGNS);
  const pen = (strong, colour) => {
    context.font = `${strong ? "500 " : ""}${font}px ${colours.mono}`;
    context.fillStyle = colour;
  };
  context.textBaseline = "middle";
  const every = cellHeight >= LABEL_FROM ? 1 : Math.ceil(14 / cellHeight);
  const colourOf = (row, key) => (row !== chosen.row ? colours.ink2 : key ? colours.ink : colours.accent);
  context.textAlign = "right";
  for (let row = 0; row < field.rows; row++) {
    const mine = row === chosen.row;
    if (!mine && (row % every !== 0 || Math.abs(row - chosen.row) * cellHeight < 12)) continue;
    pen(mine, colourOf(row, stage.rows === "key"));
    context.fillText(named(row), left - 6, top + (row + 0.5) * cellHeight);
  }
  context.textAlign = "left";
  if (stage.columns === "key") {
    const step = cellWidth >= LABEL_FROM ? 1 : Math.ceil(14 / cellWidth);
    for (let column = 0; column < cells; column++) {
      const mine = column === chosen.column;
      if (!mine && (column % step !== 0 || Math.abs(column - chosen.column) * cellWidth < 12)) continue;
      context.save();
      context.translate(left + (column + 0.5) * cellWidth, top - 6);
      context.rotate(-Math.PI / 2);
      pen(mine, mine ? colours.ink : colours.ink2);
      context.fillText(named(column), 0, 0);
      context.restore();
    }
  } else {
    pen(false, colours.ink2);
    context.font = `${font}px ${colours.sans}`;
    const columns = field.columns(key);
    const step = [1, 2, 4, 8, 16, 32, 64, 128, 256].find((size) => (size / block) * cellWidth >= 34) ?? 512;
    context.textAlign = "center";
    for (let column = 0; column < columns; column += step) {
      const x = left + (Math.floor(column / block) + 0.5) * cellWidth;
      context.fillText(field.meta.block > 1 && stage.columns === "model" ? column * field.meta.block : column, x, top - 12);
      context.fillStyle = colours.rule;
      context.fillRect(Math.round(x), top - 6, 1, 4);
      context.fillStyle = colours.ink2;
    }
  }
  context.font = `12px ${colours.sans}`;
  context.fillStyle = colours.ink;
  context.textAlign = "left";
  const across = { key: "key (is read) →", model: "dim of the model →", head: "dim of the head →", value: "dim of the value →" };
  context.fillText(across[stage.columns], left, 8);
  context.save();
  context.translate(8, top);
  context.rotate(Math.PI / 2);
  context.fillText(stage.rows === "key" ? "key (is read) →" : stage.columns === "key" ? "query (reads) →" : "position →", 0, 0);
  context.restore();
  if (key !== "softmax") return;
  context.fillText("row sum", left + side + 8, top - 12);
  for (let row = 0; row < field.rows; row++) {
    const mine = row === chosen.row;
    if (!mine && (row % every !== 0 || Math.abs(row - chosen.row) * cellHeight < 12)) continue;
    pen(mine, mine ? colours.accent : colours.ink2);
    context.fillText(decimals(field.number("row_sums", head, row), 4), left + side + 8, top + (row + 0.5) * cellHeight);
  }
}

// "masked, not zero" in the hatch, where it has room.
function drawMaskName(context, field, key, layout, colours) {
  if (!OF_MAPS.has(key)) return;
  const { left, top, cellWidth, cellHeight, side } = layout;
  const text = side < 260 ? "masked" : "the future: masked, not zero";
  context.font = `12px ${colours.sans}`;
  const width = context.measureText(text).width + 12;
  const [x, y] = [side - width - 8, Math.max(cellHeight + 4, 10)];
  for (let row = Math.floor(y / cellHeight); row <= Math.floor((y + 20) / cellHeight); row++)
    for (let column = Math.floor(x / cellWidth); column <= Math.floor((x + width) / cellWidth); column++)
      if (x < 0 || row >= field.rows || column >= field.rows || field.allowed(row, column)) return;
  context.fillStyle = colours.background;
  context.fillRect(left + x, top + y, width, 20);
  context.fillStyle = colours.ink2;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(text, left + x + 6, top + y + 10);
}

// Signed: symmetric about zero, linear. Weights: by the square root, with the true values at the ticks.
function drawBar(canvas, stage, layout, value, beyond, ramp, colours) {
  const width = Math.max(160, Math.min(layout.side, layout.space));
  const context = fitCanvas(canvas, layout.left + width + 40, BAR_HEIGHT);
  const weights = stage.field === "weight";
  const share = (x) => (weights ? Math.sqrt(Math.max(0, Math.min(1, x))) : Math.max(0, Math.min(1, (x + stage.limit) / (2 * stage.limit))));
  const place = (x) => layout.left + share(x) * (width - 1);
  for (let x = 0; x < width; x++) {
    context.fillStyle = ramp.css[Math.round((x / (width - 1)) * 255)];
    context.fillRect(layout.left + x, 8, 1, 8);
  }
  context.font = `11px ${colours.sans}`;
  context.textBaseline = "top";
  const ticks = weights ? (width < 300 ? [0, 0.1, 0.25, 0.5, 1] : WEIGHT_TICKS) : [-1, -0.5, 0, 0.5, 1].map((part) => part * stage.limit);
  for (const tick of ticks) {
    context.fillStyle = colours.rule;
    context.fillRect(Math.round(place(tick)), 16, 1, 4);
    context.fillStyle = colours.ink2;
    context.textAlign = tick === ticks[0] && weights ? "left" : "center";
    context.fillText(weights ? String(tick) : tick === 0 ? "0" : signedText(tick), place(tick), 23);
  }
  if (beyond) {
    context.fillStyle = colours.ink;
    for (const [x, way] of [[layout.left + width + 2, 1], [layout.left - 2, -1]]) {
      context.beginPath();
      context.moveTo(x + 6 * way, 12);
      context.lineTo(x, 7);
      context.lineTo(x, 17);
      context.fill();
    }
  }
  if (value === null || !Number.isFinite(value)) return;
  context.fillStyle = colours.ink;
  context.beginPath();
  context.moveTo(place(value), 8);
  context.lineTo(place(value) - 4, 2);
  context.lineTo(place(value) + 4, 2);
  context.fill();
}

// Three or four significant digits of a signed number, as short as a tick must be.
function signedText(x) {
  if (!Number.isFinite(x)) return notFinite(x);
  const size = Math.abs(x);
  if (size !== 0 && (size < 1e-3 || size >= 1e5)) return scientific(x);
  return decimals(x, size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}
