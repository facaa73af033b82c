// Drawing the cache grid on its two canvases: the axis of layers stands still, the field may scroll beside it.

function drawCacheAxis(canvas, cache, layout, colours) {
  const pen = fitCanvas(canvas, CACHE.axis, layout.height);
  pen.font = `11px ${colours.sans}`;
  pen.fillStyle = colours.ink2;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  pen.fillText("layer", CACHE.axis - 8, layout.top - 12);
  const each = [1, 5, 10, 20, 50].find((step) => step * layout.row >= 12) ?? 100;
  const last = cache.layers - 1;
  for (let layer = 0; layer <= last; layer++) {
    const wanted = layer === last || (layer % each === 0 && (last - layer) * layout.row >= 12);
    if (wanted) pen.fillText(String(layer), CACHE.axis - 8, layout.top + (layer + 0.5) * layout.row);
  }
}

// `view`: {fill: [positions, calculated, used], step, head, cell: {layer, column} | null}
function drawCacheField(canvas, cache, layout, view, colours, ramp) {
  const length = view.fill ? view.fill[0] : 0;
  const pen = fitCanvas(canvas, layout.width + 4, layout.height);
  drawEmpty(pen, layout, length, cache, colours);
  const broken = drawCells(pen, cache, layout, view, length, colours, ramp);
  const newest = view.step > 0 ? Math.floor((length - 1) / layout.factor) : null;
  drawTokenLabels(pen, cache, layout, length, newest, colours);
  drawPhases(pen, cache, layout, view, length, colours);
  if (newest !== null)
    frame(
      pen,
      newest * layout.column,
      layout.top,
      layout.column - layout.gap,
      layout.bottom - layout.top - layout.rowGap,
      colours.accent,
      2,
    );
  if (view.cell) {
    const { layer, column } = view.cell;
    const box = [
      column * layout.column,
      layout.top + layer * layout.row,
      layout.column - layout.gap,
      layout.row - layout.rowGap,
    ];
    frame(pen, ...box, colours.background, 5);
    frame(pen, ...box, colours.ink, 2);
  }
  return broken;
}

function frame(pen, x, y, width, height, colour, thick) {
  pen.strokeStyle = colour;
  pen.lineWidth = thick;
  pen.strokeRect(x - 1, y - 1, width + 2, height + 2);
}

function drawEmpty(pen, layout, length, cache, colours) {
  const from = Math.ceil(length / layout.factor) * layout.column;
  pen.save();
  pen.globalAlpha = 0.8;
  pen.fillStyle = statePattern(pen, "dots", colours.rule);
  pen.fillRect(from, layout.top, layout.width - from, layout.bottom - layout.top);
  pen.restore();
}

// Returns how many of the cells drawn are not finite.
function drawCells(pen, cache, layout, view, length, colours, ramp) {
  const patterns = { left: statePattern(pen, "hatch", colours.rule), broken: statePattern(pen, "cross", colours.bad) };
  const width = layout.column - layout.gap;
  const height = layout.row - layout.rowGap;
  const shown = Math.ceil(length / layout.factor);
  let broken = 0;
  for (let layer = 0; layer < cache.layers; layer++) {
    for (let column = 0; column < shown; column++) {
      if (cellState(cache, layout, layer, column, length) === "left") pen.fillStyle = patterns.left;
      else {
        const value = cachedLength(cache, layout, layer, view.head, column, length);
        if (!Number.isFinite(value)) broken++;
        pen.fillStyle = Number.isFinite(value) ? ramp.css[linearIndex(value, cache.low, cache.high)] : patterns.broken;
      }
      pen.fillRect(column * layout.column, layout.top + layer * layout.row, width, height);
    }
  }
  return broken;
}

function drawTokenLabels(pen, cache, layout, length, newest, colours) {
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  const size = layout.scrolls ? 9.5 : 11;
  for (const column of labelledColumns(layout, newest, length)) {
    pen.save();
    pen.translate(column * layout.column + (layout.column - layout.gap) / 2, layout.top - 8);
    pen.rotate(-Math.PI / 2);
    pen.font = `${column === newest ? "500 " : ""}${size}px ${colours.mono}`;
    pen.fillStyle = column === newest ? colours.accent : colours.ink2;
    pen.fillText(cache.labels[column] ?? "", 0, 0, layout.top - 14);
    pen.restore();
  }
}

// What is prefill, what is decode, and what is still empty, under the grid; no word is written over another.
function drawPhases(pen, cache, layout, view, length, colours) {
  const y = layout.bottom + 6;
  pen.font = `12px ${colours.sans}`;
  pen.textBaseline = "middle";
  const words = [];
  if (view.fill) {
    const end = Math.min(layout.width, (cache.prompt / layout.factor) * layout.column) - 1.5;
    pen.strokeStyle = colours.ink;
    pen.lineWidth = 1;
    pen.beginPath();
    for (const [x, down] of [
      [0.5, 0],
      [0.5, 4.5],
      [end, 4.5],
      [end, 0],
    ])
      pen.lineTo(x, y + down);
    pen.stroke();
    words.push({
      x: 0,
      text: cache.prompt === 1 ? "prefill, 1 position" : `prefill, ${groupDigits(cache.prompt)} positions at once`,
    });
    if (view.step > 0) words.push({ x: end + 5, text: "decode, one a step" });
  }
  const empty = view.fill ? "not computed yet" : "not computed yet: nothing has run";
  if (Math.ceil(length / layout.factor) < layout.count)
    words.push({ x: layout.width - pen.measureText(empty).width, text: empty });
  pen.fillStyle = colours.ink2;
  pen.textAlign = "left";
  const ends = [-Infinity, -Infinity];
  for (const { x, text } of words) {
    const line = x >= ends[0] + 14 ? 0 : 1;
    const at = Math.max(0, Math.min(Math.max(x, ends[line] + 14), layout.width - pen.measureText(text).width));
    pen.fillText(text, at, y + 18 + 16 * line);
    ends[line] = at + pen.measureText(text).width;
  }
}

// The scale of the colours, with a pointer at the value that is read.
function drawCacheScale(canvas, cache, value, colours, ramp) {
  const width = 170;
  const pen = fitCanvas(canvas, width + 24, 34);
  for (let x = 0; x < width; x++) {
    pen.fillStyle = ramp.css[Math.round((x / (width - 1)) * 255)];
    pen.fillRect(12 + x, 8, 1, 8);
  }
  pen.fillStyle = colours.ink2;
  pen.font = `11px ${colours.sans}`;
  pen.textBaseline = "middle";
  pen.textAlign = "center";
  const ticks = cache.high > cache.low ? [0, 0.5, 1] : [0];
  for (const tick of ticks) {
    pen.fillText(decimals(cache.low + tick * (cache.high - cache.low), 1), 12 + tick * width, 27);
    pen.fillRect(12 + tick * (width - 1), 16, 1, 4);
  }
  if (!Number.isFinite(value)) return;
  const x = 12 + (linearIndex(value, cache.low, cache.high) / 255) * width;
  pen.fillStyle = colours.ink;
  pen.beginPath();
  for (const [dx, y] of [
    [-4, 1],
    [4, 1],
    [0, 7],
  ])
    pen.lineTo(x + dx, y);
  pen.fill();
}
