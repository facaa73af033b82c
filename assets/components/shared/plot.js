// Line charts on a canvas, in the look of figures/chart.py: horizontal hairlines, names at the ends of their lines, no legend.
// For curves that follow a slider: a full redraw of a few thousand points takes a few milliseconds.

const PLOT_LABEL_GAP = 16;
const PLOT_DASHES = { solid: [], dash: [7, 4], dot: [2, 3] };

// {low, high, log, ticks: [[value, text]]} for an axis that shows these ends.
function plotAxis(low, high, { log = false, most = 5, text = null } = {}) {
  if (log) return plotDecades(low, high, most, text ?? plotPower);
  if (!(high > low)) [low, high] = [low - 0.5, low + 0.5];
  const size = 10 ** Math.floor(Math.log10((high - low) / most));
  const step = [1, 2, 5, 10].map((m) => m * size).find((s) => (high - low) / s <= most) ?? size * 10;
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k <= Math.floor(high / step + 1e-9); k++) ticks.push(k * step);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return { low, high, log, ticks: ticks.map((value) => [value, (text ?? ((v) => decimals(Math.abs(v) < step / 1e6 ? 0 : v, digits)))(value)]) };
}

function plotDecades(low, high, most, text) {
  const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  const stride = Math.max(1, Math.ceil((last - first + 1) / most));
  let values = [];
  for (let power = first; power <= last; power += stride) values.push(10 ** power);
  if (values.length < 2) {
    const span = Math.log2(high / low);
    const jump = 2 ** Math.max(1, Math.ceil(span / most));
    values = [];
    for (let value = 2 ** Math.ceil(Math.log2(low) - 1e-9); value <= high * (1 + 1e-9); value *= jump) values.push(value);
  }
  return { low, high, log: true, ticks: values.map((value) => [value, text(value)]) };
}

const plotPower = (value) => (value >= 1e6 || value < 1e-3 ? `10${[...String(Math.round(Math.log10(value)))].map((sign) => (sign === "-" ? "⁻" : SUPERSCRIPT[sign])).join("")}` : value >= 1 ? groupDigits(value) : String(value));

const plotPlace = (axis, value) =>
  axis.log ? Math.log(value / axis.low) / Math.log(axis.high / axis.low) : (value - axis.low) / (axis.high - axis.low);

// lines: [{name, xs, ys, colour, width, dash, rings, discs}]; limits: [{y, label}] dotted; verticals: [{x, label}];
// bands: [{from, to, kind}] hatched between two heights; dots: [{x, y, colour}] hollow. Returns {x(value), y(value), left, right, top, bottom, invert(px)}.
function drawPlot(canvas, width, height, { x, y, xTitle, yTitle, lines = [], limits = [], verticals = [], bands = [], dots = [], names = true }, colours) {
  const pen = fitCanvas(canvas, width, height);
  pen.textBaseline = "middle";
  pen.font = `12px ${colours.sans}`;
  const left = 12 + Math.ceil(Math.max(...y.ticks.map(([, text]) => pen.measureText(text).width), 8));
  const named = names ? lines.filter((line) => line.name) : [];
  pen.font = `500 12.5px ${colours.sans}`;
  const room = named.length ? 14 + Math.ceil(Math.max(...named.map((line) => pen.measureText(line.name).width))) : 8;
  const box = { left, right: width - room, top: 30, bottom: height - 42 };
  const px = (value) => box.left + (box.right - box.left) * plotPlace(x, value);
  const py = (value) => box.bottom - (box.bottom - box.top) * plotPlace(y, value);
  plotFrame(pen, { x, y, xTitle, yTitle }, box, px, py, width, colours);
  for (const band of bands) plotBand(pen, band, box, py, colours);
  for (const limit of limits) plotLimit(pen, limit, box, py, colours);
  for (const vertical of verticals) plotVertical(pen, vertical, box, px, colours);
  pen.save();
  pen.beginPath();
  pen.rect(box.left - 6, box.top - 6, box.right - box.left + 12, box.bottom - box.top + 12);
  pen.clip();
  for (const line of lines) plotLine(pen, line, px, py, colours);
  for (const dot of dots) plotRing(pen, px(dot.x), py(dot.y), 4.5, dot.colour, colours);
  pen.restore();
  plotNames(pen, named, box, py, colours);
  const invert = (at) => {
    const share = Math.max(0, Math.min(1, (at - box.left) / (box.right - box.left)));
    return x.log ? x.low * (x.high / x.low) ** share : x.low + share * (x.high - x.low);
  };
  return { ...box, x: px, y: py, invert };
}

function plotFrame(pen, { x, y, xTitle, yTitle }, box, px, py, width, colours) {
  pen.font = `12px ${colours.sans}`;
  pen.fillStyle = colours.ink2;
  pen.lineWidth = 1;
  for (const [value, text] of y.ticks) {
    const at = Math.round(py(value)) + 0.5;
    if (at < box.top - 1 || at > box.bottom + 1) continue;
    pen.strokeStyle = colours.hairline;
    plotSegment(pen, box.left, at, box.right, at);
    pen.textAlign = "right";
    pen.fillText(text, box.left - 7, at);
  }
  pen.strokeStyle = colours.rule;
  plotSegment(pen, box.left, Math.round(box.bottom) + 0.5, box.right, Math.round(box.bottom) + 0.5);
  pen.textAlign = "center";
  let free = -Infinity;
  for (const [value, text] of x.ticks) {
    const half = pen.measureText(text).width / 2;
    const at = Math.max(half, Math.min(width - half, px(value)));
    if (at - half < free + 10) continue;
    free = at + half;
    plotSegment(pen, px(value), box.bottom, px(value), box.bottom + 4);
    pen.fillText(text, at, box.bottom + 14);
  }
  pen.fillStyle = colours.ink;
  pen.font = `12.5px ${colours.sans}`;
  pen.textAlign = "left";
  pen.fillText(yTitle, 0, 9);
  pen.textAlign = "right";
  pen.fillText(xTitle, box.right, box.bottom + 33);
}

function plotSegment(pen, x1, y1, x2, y2) {
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}

function plotBand(pen, { from, to }, box, py, colours) {
  const [top, bottom] = [py(to), py(from)].map((at) => Math.max(box.top, Math.min(box.bottom, at)));
  pen.fillStyle = statePattern(pen, "hatch", colours.hairline);
  pen.fillRect(box.left, top, box.right - box.left, bottom - top);
}

function plotLimit(pen, { y, label }, box, py, colours) {
  const at = Math.round(py(y)) + 0.5;
  if (at < box.top - 4 || at > box.bottom + 4) return;
  pen.strokeStyle = colours.rule;
  pen.setLineDash([1, 3]);
  plotSegment(pen, box.left, at, box.right, at);
  pen.setLineDash([]);
  pen.font = `12px ${colours.sans}`;
  pen.textAlign = "left";
  plotHalo(pen, label, box.left + 6, at - 9, colours.ink2, colours);
}

function plotVertical(pen, { x, label, dotted }, box, px, colours) {
  const at = Math.round(px(x)) + 0.5;
  if (at < box.left - 1 || at > box.right + 1) return;
  pen.strokeStyle = dotted ? colours.rule : colours.ink2;
  pen.setLineDash(dotted ? [1, 3] : []);
  plotSegment(pen, at, box.top, at, box.bottom);
  pen.setLineDash([]);
  if (!label) return;
  pen.font = `12px ${colours.sans}`;
  const before = at + pen.measureText(label).width + 8 > box.right;
  pen.textAlign = before ? "right" : "left";
  plotHalo(pen, label, at + (before ? -6 : 6), box.top + 4, colours.ink2, colours);
}

function plotHalo(pen, text, x, y, colour, colours) {
  pen.lineWidth = 4;
  pen.strokeStyle = colours.background;
  pen.strokeText(text, x, y);
  pen.fillStyle = colour;
  pen.fillText(text, x, y);
  pen.lineWidth = 1;
}

function plotLine(pen, { xs, ys, colour, width = 1.75, dash = "solid", rings = null, discs = false }, px, py, colours) {
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.setLineDash(PLOT_DASHES[dash]);
  pen.beginPath();
  let drawing = false;
  for (let k = 0; k < xs.length; k++) {
    const at = py(ys[k]);
    if (!Number.isFinite(at)) drawing = false;
    else if (drawing) pen.lineTo(px(xs[k]), at);
    else pen.moveTo(px(xs[k]), at);
    if (Number.isFinite(at)) drawing = true;
  }
  pen.stroke();
  pen.setLineDash([]);
  if (rings) for (const k of rings) plotRing(pen, px(xs[k]), py(ys[k]), 3, colour, colours);
  if (discs) {
    pen.fillStyle = colour;
    for (let k = 0; k < xs.length; k++) {
      pen.beginPath();
      pen.arc(px(xs[k]), py(ys[k]), 2.5, 0, 2 * Math.PI);
      pen.fill();
    }
  }
}

function plotRing(pen, x, y, radius, colour, colours) {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.fillStyle = colours.background;
  pen.fill();
  pen.strokeStyle = colour;
  pen.lineWidth = 1.75;
  pen.stroke();
}

// Names at the ends of their lines, from the top down, each at least PLOT_LABEL_GAP below the one above and none on the axis's numbers.
function plotNames(pen, lines, box, py, colours) {
  const ends = lines.map((line) => {
    const last = line.ys.length - 1;
    return { line, at: Math.max(box.top, Math.min(box.bottom, py(line.ys[last]))) };
  });
  ends.sort((a, b) => a.at - b.at);
  ends.forEach((end, k) => (end.at = k ? Math.max(end.at, ends[k - 1].at + PLOT_LABEL_GAP) : end.at));
  for (let k = ends.length - 1, floor = box.bottom - 4; k >= 0; k--, floor -= PLOT_LABEL_GAP) ends[k].at = Math.min(ends[k].at, floor);
  pen.font = `500 12.5px ${colours.sans}`;
  pen.textAlign = "left";
  for (const { line, at } of ends) {
    pen.fillStyle = line.colour;
    pen.fillText(line.name, box.right + 10, at);
  }
}

// The theme's colours for series, in their fixed order.
const seriesColours = (host) =>
  getComputedStyle(host)
    .getPropertyValue("--st-chart-categorical-colors")
    .split(/,(?![^(]*\))/)
    .map((colour) => colour.trim());

// The number of significant figures a reader wants: 0.0123, 1.5, 12 300; a power of ten outside.
function significant(x, n = 3) {
  if (!Number.isFinite(x)) return notFinite(x);
  if (x === 0) return "0";
  const rounded = Number(x.toPrecision(n));
  const exponent = Math.floor(Math.log10(Math.abs(rounded)));
  return exponent < -4 || exponent >= 7 ? scientific(rounded, n - 1) : decimals(rounded, Math.max(0, n - 1 - exponent));
}
