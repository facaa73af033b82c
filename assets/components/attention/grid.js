// All heads at once: layers down, query heads across in groups that share a KV head; each a thumbnail or, for one cell, a square.

const HEAD_AXIS = 32; // the height of the brackets and head numbers, which stay in sight when the grid scrolls

// Where things are, in CSS pixels. A phone fits the heads into its width; elsewhere the pitch is 20 and the box scrolls.
function gridLayout(field, width, narrow, ranks = null) {
  if (ranks?.order) return rankedLayout(field, width, ranks.order);
  const left = 26;
  const top = 2; // room for the frame of a head in the first row
  const gap = 7;
  const gaps = gap * (field.kvHeads - 1);
  const pitch = narrow ? Math.max(14, Math.min(44, Math.floor((width - left - gaps - 2) / field.heads))) : 20;
  const x = (head) => left + head * pitch + Math.floor(head / field.groupSize) * gap;
  const y = (layer) => top + layer * pitch;
  return {
    order: null,
    left,
    top,
    pitch,
    thumb: pitch - 2,
    width: left + field.heads * pitch + gaps + 2,
    height: top + field.layers * pitch + 4,
    x,
    y,
    place: (layer, head) => ({ x: x(head), y: y(layer) }),
  };
}

// The head at a point, or null in a margin or a gap that belongs to none.
function headAt(field, layout, x, y) {
  if (layout.order) return rankedAt(field, layout, x, y);
  const layer = Math.floor((y - layout.top) / layout.pitch);
  if (layer < 0 || layer >= field.layers) return null;
  for (let head = 0; head < field.heads; head++) if (x >= layout.x(head) && x < layout.x(head) + layout.pitch) return { layer, head };
  return null;
}

// The head that an arrow key, Home or End goes to.
function stepHead(field, layout, { layer, head }, down, right, end) {
  if (layout.order) return rankedStep(field, layout, { layer, head }, down, right, end);
  const across = end === "first" ? 0 : end === "last" ? field.heads - 1 : head + right;
  return { layer: Math.max(0, layer + down), head: Math.max(0, across) };
}

// Every head's thumbnail, painted once for a payload, scale, theme and size: moving about then only copies from it.
// Pooled by maximum to device pixels, never sampled; a pixel stays empty only if nothing under it has a value.
function paintThumbnails(field, scale, layout, ramp, colours) {
  const pixels = Math.max(1, Math.round(layout.thumb * pixelRatio()));
  const sheet = new OffscreenCanvas(pixels * field.heads, pixels * field.layers);
  const context = sheet.getContext("2d");
  const image = new ImageData(pixels, pixels);
  const out = new Uint32Array(image.data.buffer);
  const [badRed, badGreen, badBlue] = rgbOf(colours.bad);
  const bad = ((255 << 24) | (badBlue << 16) | (badGreen << 8) | badRed) >>> 0;
  const { side } = field.thumbnail(0, 0, scale);
  const values = new Float64Array(side);
  const states = new Uint8Array(side);
  const top = new Float64Array(pixels);
  const from = (pixel) => Math.floor((pixel * side) / pixels);
  const to = (pixel) => Math.max(from(pixel) + 1, Math.ceil(((pixel + 1) * side) / pixels));

  for (let layer = 0; layer < field.layers; layer++)
    for (let head = 0; head < field.heads; head++) {
      const thumbnail = field.thumbnail(layer, head, scale);
      for (let down = 0; down < pixels; down++) {
        top.fill(-1);
        for (let row = from(down); row < to(down); row++) {
          thumbnail.readRow(row, values, states);
          for (let across = 0; across < pixels; across++)
            for (let column = from(across); column < to(across); column++) {
              if (states[column] === VALUE) top[across] = Math.max(top[across], values[column]);
              else if (states[column] === NOT_FINITE) top[across] = Infinity;
            }
        }
        for (let across = 0; across < pixels; across++)
          out[down * pixels + across] = top[across] < 0 ? 0 : top[across] === Infinity ? bad : ramp.packed[rootIndex(top[across])];
      }
      context.putImageData(image, head * pixels, layer * pixels);
    }
  return { sheet, pixels };
}

function drawGrid(canvas, field, view, layout, ranks, thumbnails, ramp, colours, pins) {
  const context = fitCanvas(canvas, layout.width, layout.height);
  if (!layout.order) drawLayerAxis(context, field, view, layout, colours);
  const absent = statePattern(context, "dots", colours.rule);
  context.imageSmoothingEnabled = false;
  for (const name of layout.order ?? Array(field.layers * field.heads).keys()) {
    const [layer, head] = [Math.floor(name / field.heads), name % field.heads];
    const { x, y } = layout.place(layer, head);
    const score = ranks?.scores[name];
    const kept = !ranks || ranks.kept(name);
    context.globalAlpha = kept || view.grid === "cell" ? 1 : 0.22;
    if (view.grid === "cell") {
      context.fillStyle = Number.isNaN(score) ? absent : ramp.css[rootIndex(score)];
      context.fillRect(x, y, layout.thumb, layout.thumb);
    } else {
      const { sheet, pixels } = thumbnails;
      context.drawImage(sheet, head * pixels, layer * pixels, pixels, pixels, x, y, layout.thumb, layout.thumb);
    }
    context.globalAlpha = 1;
    if (layout.order) drawRankedName(context, field, view, name, { x, y }, score, colours);
    else if (ranks && kept && score > 0) {
      context.fillStyle = colours.ink;
      context.fillRect(x, y + layout.thumb, layout.thumb, 1);
    }
  }
  context.lineWidth = 2;
  for (const [place, colour] of [...pins.map((pin) => [layout.place(pin.layer, pin.head), pin.colour]), [layout.place(view.layer, view.head), colours.accent]]) {
    context.strokeStyle = colour;
    if (place) context.strokeRect(place.x - 1, place.y - 1, layout.thumb + 2, layout.thumb + 2);
  }
}

// Brackets over the heads of one KV head, and head numbers.
function drawHeadAxis(canvas, field, view, layout, colours) {
  const context = fitCanvas(canvas, layout.width, layout.order ? 0 : HEAD_AXIS);
  if (layout.order) return;
  const top = HEAD_AXIS;
  context.textAlign = "center";
  context.lineWidth = 1;
  context.strokeStyle = colours.rule;
  context.fillStyle = colours.ink2;
  context.font = gridFont(colours);
  const named = field.groupSize * layout.pitch >= 30;
  for (let group = 0; group < field.kvHeads; group++) {
    const from = layout.x(group * field.groupSize);
    const to = layout.x((group + 1) * field.groupSize - 1) + layout.thumb;
    context.beginPath();
    context.moveTo(from + 0.5, top - 15);
    context.lineTo(from + 0.5, top - 18.5);
    context.lineTo(to - 0.5, top - 18.5);
    context.lineTo(to - 0.5, top - 15);
    context.stroke();
    context.fillText(named ? `KV ${group}` : group, (from + to) / 2, top - 23);
  }
  for (let head = 0; head < field.heads; head++) {
    const chosen = head === view.head;
    context.fillStyle = chosen ? colours.accent : colours.ink2;
    context.font = gridFont(colours, chosen);
    context.fillText(head, layout.x(head) + layout.thumb / 2, top - 4);
  }
}

const gridFont = (colours, chosen = false) => `${chosen ? "500 " : ""}10.5px ${colours.sans}`;

// Every fifth layer, the last and the selected one.
function drawLayerAxis(context, field, view, layout, colours) {
  context.textAlign = "right";
  for (let layer = 0; layer < field.layers; layer++) {
    const chosen = layer === view.layer;
    const near = Math.abs(layer - view.layer) === 1;
    if (!chosen && (near || (layer % 5 !== 0 && layer !== field.layers - 1))) continue;
    context.fillStyle = chosen ? colours.accent : colours.ink2;
    context.font = gridFont(colours, chosen);
    context.fillText(layer, layout.left - 7, layout.y(layer) + layout.thumb / 2 + 3.5);
  }
}
