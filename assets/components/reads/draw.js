// Drawing the heads as rows and the positions as columns.

function drawReads(canvas, axis, reads, layout, rows, view, colours, ramp) {
  drawReadsAxis(axis, reads, layout, rows, view, colours);
  const pen = fitCanvas(canvas, layout.width + 4, layout.height);
  drawWeights(pen, reads, layout, rows, colours, ramp);
  drawNames(pen, reads, layout, view, colours);
  const picked = rows.indexOf(view.picked);
  if (picked >= 0) outline(pen, 0, layout.top + picked * layout.row, layout.width, layout.row, colours, colours.accent);
  if (view.cell) outline(pen, view.cell.column * layout.column, layout.top + view.cell.row * layout.row, layout.column, layout.row, colours, colours.ink);
}

function outline(pen, x, y, width, height, colours, colour) {
  for (const [stroke, thick] of [[colours.background, 4], [colour, 2]]) {
    pen.strokeStyle = stroke;
    pen.lineWidth = thick;
    pen.strokeRect(x - 1, y - 1, width + 2, height + 2);
  }
}

// One pixel a cell, then enlarged without smoothing; what a head cannot read is hatched over it.
function drawWeights(pen, reads, layout, rows, colours, ramp) {
  const image = new ImageData(layout.count, rows.length);
  const pixels = new Uint32Array(image.data.buffer);
  const gaps = [];
  rows.forEach((head, y) => {
    let from = -1;
    for (let x = 0; x <= layout.count; x++) {
      const weight = x < layout.count ? cellWeight(reads, layout, head, x) : 0;
      const gap = Number.isNaN(weight);
      if (gap && from < 0) from = x;
      if (!gap && from >= 0) {
        gaps.push([from, x, y]);
        from = -1;
      }
      if (x < layout.count && !gap) pixels[y * layout.count + x] = ramp.packed[rootIndex(weight)];
    }
  });
  const small = new OffscreenCanvas(layout.count, rows.length);
  small.getContext("2d").putImageData(image, 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(small, 0, layout.top, layout.width, layout.row * rows.length);
  pen.fillStyle = statePattern(pen, "hatch", colours.rule);
  for (const [from, to, y] of gaps) pen.fillRect(from * layout.column, layout.top + y * layout.row, (to - from) * layout.column, layout.row);
  if (layout.row < 6) return;
  pen.fillStyle = colours.background;
  for (let y = 1; y < rows.length; y++) pen.fillRect(0, layout.top + y * layout.row - 0.5, layout.width, 1);
}

// The tokens over their columns, as many as there is room for; pooled cells have their first position instead.
function drawNames(pen, reads, layout, view, colours) {
  pen.textBaseline = "middle";
  if (layout.factor > 1) {
    pen.font = `10px ${colours.mono}`;
    pen.fillStyle = colours.ink3;
    const each = Math.ceil(44 / layout.column);
    for (let column = 0; column < layout.count; column += each) pen.fillText(String(column * layout.factor), column * layout.column, layout.top - 8);
    return;
  }
  const each = Math.ceil(13 / layout.column);
  for (let column = 0; column < layout.count; column++) {
    const last = column === layout.count - 1;
    if (!last && (column % each || layout.count - 1 - column < each)) continue;
    pen.save();
    pen.translate(column * layout.column + layout.column / 2, layout.top - 8);
    pen.rotate(-Math.PI / 2);
    pen.font = `${last ? "500 " : ""}11px ${colours.mono}`;
    pen.fillStyle = last ? colours.accent : colours.ink2;
    pen.fillText(reads.labels[column], 0, 0, layout.top - 12);
    pen.restore();
  }
}

function drawReadsAxis(canvas, reads, layout, rows, { layer, order }, colours) {
  const pen = fitCanvas(canvas, READS.axis, layout.height);
  pen.font = `11px ${colours.sans}`;
  pen.fillStyle = colours.ink2;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  const sorted = order !== "layer";
  pen.fillText(layer !== null ? "head" : sorted ? "sorted" : "layer", READS.axis - 8, layout.top - 8);
  let free = -Infinity;
  rows.forEach((index, y) => {
    const { layer: l, head } = headOf(reads, index);
    const middle = layout.top + (y + 0.5) * layout.row;
    const block = layer === null && !sorted;
    if (block && head) return;
    const at = block ? layout.top + (y + Math.min(reads.heads, 12 / layout.row) / 2) * layout.row : middle;
    if (at - 6 < free - 1 || at > layout.bottom) return;
    pen.fillText(block ? String(l) : layer === null ? `${l}·${head}` : String(head), READS.axis - 8, at);
    free = at + 7;
  });
}

// The scale of the colours, by the square root of the weight, with a pointer at the weight that is read.
function drawReadsScale(canvas, weight, colours, ramp) {
  const width = 190;
  const pen = fitCanvas(canvas, width + 24, 34);
  for (let x = 0; x < width; x++) {
    pen.fillStyle = ramp.css[Math.round((x / (width - 1)) * 255)];
    pen.fillRect(12 + x, 8, 1, 8);
  }
  pen.fillStyle = colours.ink2;
  pen.font = `11px ${colours.sans}`;
  pen.textBaseline = "middle";
  pen.textAlign = "center";
  for (const tick of [0, 0.05, 0.25, 0.5, 1]) {
    const x = 12 + Math.sqrt(tick) * (width - 1);
    pen.fillText(String(tick), x, 27);
    pen.fillRect(x, 16, 1, 4);
  }
  if (!Number.isFinite(weight)) return;
  const x = 12 + Math.sqrt(weight) * width;
  pen.fillStyle = colours.ink;
  pen.beginPath();
  for (const [dx, y] of [[-4, 1], [4, 1], [0, 7]]) pen.lineTo(x + dx, y);
  pen.fill();
}
