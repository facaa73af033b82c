// What stands around and on the enlarged map: labels, reticle, the name of the hatched part, the colour bar.

const TICKS = [0, 0.01, 0.05, 0.1, 0.25, 0.5, 1];
const BAR_HEIGHT = 46;

function drawMapAxes(context, field, view, layout, colours) {
  const { left, top, edge, font } = layout;
  const middle = (index) => (edge(index) + edge(index + 1)) / 2;
  context.textBaseline = "middle";
  for (const { index, text, chosen } of axisLabels(field, layout, layout.firstQuery, view.query)) {
    context.textAlign = "right";
    context.font = `${chosen ? "500 " : ""}${font}px ${colours.mono}`;
    context.fillStyle = chosen ? colours.accent : colours.ink2;
    context.fillText(text, left - 8, top + middle(index));
  }
  for (const { index, text, chosen } of axisLabels(field, layout, layout.firstKey, view.key)) {
    context.save();
    context.translate(left + middle(index), top - 8);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    context.font = `${chosen ? "500 " : ""}${font}px ${colours.mono}`;
    context.fillStyle = chosen ? colours.accent : colours.ink2;
    context.fillText(text, 0, 0);
    context.restore();
  }
  context.font = `12px ${colours.sans}`;
  context.fillStyle = colours.ink;
  context.textAlign = "left";
  context.fillText("key (is read) →", left, 8);
  context.save();
  context.translate(8, top);
  context.rotate(Math.PI / 2);
  context.fillText("query (reads) →", 0, 0);
  context.restore();
}

// Each label with its place: every one, or every n-th with its position, leaving room for the selected one.
function axisLabels(field, layout, first, selected) {
  const labels = [];
  const named = (position) => (layout.every > 1 ? `${position} ` : "") + shortened(field.labels[position], layout.longest);
  const chosenIndex = cellIndex(layout, first, selected);
  const room = 14 / layout.size; // cells
  for (let position = first; position < first + layout.shown; position++) {
    const index = cellIndex(layout, first, position);
    const chosen = position === selected;
    if (!chosen && (position % layout.every !== 0 || (layout.every > 1 && chosenIndex !== null && Math.abs(index - chosenIndex) < room))) continue;
    labels.push({ index, text: named(position), chosen });
  }
  return labels;
}

// The selected query's row and key's column in accent, the cell in ink with a halo of the page.
function drawReticle(context, field, view, layout, colours) {
  const { left, top, side, edge } = layout;
  const row = cellIndex(layout, layout.firstQuery, view.query);
  const column = cellIndex(layout, layout.firstKey, view.key);
  if (row === null || column === null) return;
  const x = left + edge(column) - 0.5;
  const y = top + edge(row) - 0.5;
  const width = edge(column + 1) - edge(column);
  const height = edge(row + 1) - edge(row);
  context.strokeStyle = colours.accent;
  context.lineWidth = 1;
  context.strokeRect(left - 0.5, y, side, height);
  context.strokeRect(x, top - 0.5, width, side);
  context.beginPath();
  context.moveTo(left - 5, y + height / 2);
  context.lineTo(left, y + height / 2);
  context.moveTo(x + width / 2, top - 5);
  context.lineTo(x + width / 2, top);
  context.stroke();
  context.lineWidth = 2.5;
  context.strokeStyle = colours.background;
  context.strokeRect(x - 0.5, y - 0.5, width + 1, height + 1);
  context.lineWidth = 2;
  context.strokeStyle = colours.ink;
  context.strokeRect(x - 1, y - 1, width + 2, height + 2);
}

// "masked, not zero", written into the hatch if there is an empty place for it.
function drawMaskName(context, field, layout, { states }, colours) {
  const { left, top, side, size, cells } = layout;
  const text = field.causal ? "the future: masked, not zero" : "masked, not zero";
  context.font = `12px ${colours.sans}`;
  const width = context.measureText(text).width + 12;
  const x = Math.min(side - width - 10, side * 0.5);
  const y = Math.max(size + 6, side * 0.135 - 10);
  for (let row = Math.floor(y / size); row <= Math.floor((y + 20) / size); row++)
    for (let column = Math.floor(x / size); column <= Math.floor((x + width) / size); column++)
      if (x < 0 || row >= cells || column >= cells || states[row * cells + column] !== MASKED) return;
  context.fillStyle = colours.background;
  context.fillRect(left + x, top + y, width, 20);
  context.fillStyle = colours.ink2;
  context.textAlign = "left";
  context.fillText(text, left + x + 6, top + y + 10);
}

// As wide as the map; the colour follows the square root of the weight, the ticks carry the true values.
function drawColourBar(canvas, view, layout, value, beyond, ramp, colours) {
  const width = Math.max(layout.side, 220);
  const context = fitCanvas(canvas, Math.max(layout.width, layout.left + width + 8), BAR_HEIGHT);
  const place = (weight) => layout.left + Math.sqrt(Math.min(1, weight)) * (width - 1);
  for (let x = 0; x < width; x++) {
    context.fillStyle = ramp.css[Math.round((x / (width - 1)) * 255)];
    context.fillRect(layout.left + x, 8, 1, 8);
  }
  context.font = `11px ${colours.sans}`;
  context.fillStyle = colours.ink2;
  context.strokeStyle = colours.rule;
  context.textBaseline = "top";
  for (const tick of width < 300 ? TICKS.filter((tick) => tick !== 0.05) : TICKS) {
    const x = Math.round(place(tick)) + (tick === 1 ? -0.5 : 0.5);
    context.beginPath();
    context.moveTo(x, 16);
    context.lineTo(x, 20);
    context.stroke();
    context.textAlign = tick === 0 ? "left" : tick === 1 ? "right" : "center";
    context.fillText(tick, place(tick), 23);
  }
  context.textAlign = "right";
  context.fillText(view.scale === "raw" ? "weight" : "share", layout.left - 8, 6);
  if (beyond) triangle(context, layout.left + width, 12, 6, 0, colours.ink);
  if (value !== null) triangle(context, place(value), 8, 0, -6, colours.ink);
}

// A pointer with its tip at (x, y) if it points down, or standing on (x, y) if it points right.
function triangle(context, x, y, right, up, colour) {
  context.fillStyle = colour;
  context.beginPath();
  if (right) {
    context.moveTo(x + right, y);
    context.lineTo(x, y - 5);
    context.lineTo(x, y + 5);
  } else {
    context.moveTo(x, y);
    context.lineTo(x - 4, y + up);
    context.lineTo(x + 4, y + up);
  }
  context.fill();
}
