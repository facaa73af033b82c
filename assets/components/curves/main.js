// Lines over positions with their error bands, one read at a time: the pointer, or left and right, move the reading.

export default function ({ data, parentElement }) {
  const host = parentElement.querySelector(".gb");
  const state = mounted(parentElement, () => ({ at: null, line: null, stop: () => {} }));
  state.stop();
  const chart = readCurves(unpack(data));
  const canvas = element("canvas", { tabindex: 0, role: "application", "aria-roledescription": "chart", "aria-label": chart.meta.label });
  const reading = element("div", { class: "note reading", "aria-live": "polite" });
  const saves = figureSaves(chart.meta.file, () => [canvas], () => curveRows(chart), () => themeColours(host));
  const root = element("div", { class: "curves" }, canvas, reading, saves);
  host.replaceChildren(root);
  const longest = Math.max(...chart.lines.map((line) => line.xs.length));
  let plot = null;

  function draw() {
    const width = Math.floor(root.clientWidth);
    if (!width) return;
    const colours = themeColours(host);
    const series = seriesColours(host);
    if (state.at >= longest) state.at = null;
    const { x, y } = curveAxes(chart, width);
    const lines = chart.lines.map((line, index) => curveLine(line, index, chart.meta, state, series, colours));
    const { meta } = chart;
    const verticals = meta.verticals.map(([value, label]) => ({ x: value, label, dotted: true }));
    plot = drawPlot(canvas, width, width < 560 ? 320 : 360, { x, y, xTitle: meta.x_title, yTitle: meta.y_title, lines, verticals, limits: meta.limits.map(([value, label]) => ({ y: value, label })) }, colours);
    const pen = canvas.getContext("2d");
    lines.forEach((line, index) => drawBand(pen, chart.lines[index], line, plot, state.line === null ? 0.14 : state.line === index ? 0.24 : 0));
    if (state.at !== null) drawReticle(pen, chart, state, lines, plot, colours);
    reading.replaceChildren(...curveReading(chart, state, lines));
    root.dataset.state = JSON.stringify({ at: state.at, line: state.line });
  }

  function choose(at, line) {
    if (at === state.at && line === state.line) return;
    Object.assign(state, { at, line });
    draw();
  }
  canvas.onpointermove = (event) => {
    if (!plot) return;
    const box = canvas.getBoundingClientRect();
    const px = event.clientX - box.left;
    const py = event.clientY - box.top;
    const at = nearestPoint(chart, plot.invert(px));
    // To the right of the axis stand the names: there the line that ends nearest is meant.
    const gaps = chart.lines.map((line) => {
      const k = Math.min(at, line.ys.length - 1);
      const gone = at >= line.xs.length && px < plot.right;
      return gone ? Infinity : Math.abs(plot.y(line.ys[k]) - py);
    });
    const best = gaps.indexOf(Math.min(...gaps));
    choose(at, gaps[best] < 20 ? best : null);
  };
  canvas.onpointerleave = () => choose(null, null);
  canvas.onkeydown = (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const at = state.at === null ? 0 : Math.max(0, Math.min(longest - 1, state.at + step[0]));
    const line = step[1] ? Math.max(0, Math.min(chart.lines.length - 1, (state.line ?? -step[1]) + step[1])) : state.line;
    choose(at, line);
  };
  root.lines = chart.lines;
  draw();
  whenFontsLoad(draw);
  state.stop = onWidth(root, draw);
  return () => {
    state.stop();
    unmount(parentElement);
  };
}

function readCurves({ meta, arrays }) {
  const lines = meta.lines.map((spec, index) => {
    const [xs, ys, errors] = [0, 1, 2].map((k) => arrays[3 * index + k].data);
    return { ...spec, xs, ys, errors };
  });
  return { meta, lines };
}

function curveAxes({ meta, lines }, width) {
  const ends = ({ ys, errors }) => (meta.bands ? [...Array.from(ys, (y, k) => y + errors[k]), ...Array.from(ys, (y, k) => y - errors[k])] : []);
  const ys = lines.flatMap((line) => [...line.ys, ...ends(line)]).filter(Number.isFinite);
  let [low, high] = ys.length ? [Math.min(...ys), Math.max(...ys)] : [0, 1];
  const pad = 0.06 * (high - low || 1);
  low = meta.from_zero ? Math.min(0, low) : low - pad;
  const y = meta.log ? plotAxis(Math.min(...ys) * 0.9, Math.max(...ys) * 1.1, { log: true }) : plotAxis(low, high + pad, { most: 5 });
  const xs = lines.flatMap((line) => [line.xs[0], line.xs[line.xs.length - 1]]);
  const [start, end] = meta.x_range ?? [Math.min(...xs), Math.max(...xs)];
  const x = plotAxis(start, end, { most: width < 560 ? 4 : 6 });
  if (meta.x_ticks.length) x.ticks = meta.x_ticks.map((value) => [value, groupDigits(value)]);
  return { x, y };
}

function curveLine(line, index, meta, state, series, colours) {
  const shade = line.colour % series.length;
  const faded = state.line !== null && state.line !== index;
  return {
    name: line.name,
    xs: line.xs,
    ys: line.ys,
    colour: faded ? colours.rule : series[shade],
    width: !meta.joined ? 1e-6 : state.line === index ? 2.5 : faded ? 1 : 1.75,
    dash: shade < 4 ? "solid" : shade < 6 ? "dash" : "dot",
    discs: meta.discs,
  };
}

function drawBand(pen, { xs, ys, errors }, { colour }, plot, strength) {
  if (!strength || !errors.length || !Number.isFinite(errors[0])) return;
  pen.save();
  pen.beginPath();
  pen.rect(plot.left, plot.top - 6, plot.right - plot.left, plot.bottom - plot.top + 6);
  pen.clip();
  pen.globalAlpha = strength;
  pen.fillStyle = colour;
  pen.beginPath();
  for (let k = 0; k < xs.length; k++) pen.lineTo(plot.x(xs[k]), plot.y(ys[k] + errors[k]));
  for (let k = xs.length - 1; k >= 0; k--) pen.lineTo(plot.x(xs[k]), plot.y(ys[k] - errors[k]));
  pen.fill();
  pen.restore();
}

function drawReticle(pen, { lines }, { at, line }, drawn, plot, colours) {
  const longest = lines.reduce((most, one) => (one.xs.length > most.xs.length ? one : most));
  const x = Math.round(plot.x(longest.xs[at])) + 0.5;
  pen.strokeStyle = colours.accent;
  pen.lineWidth = 1;
  plotSegment(pen, x, plot.top, x, plot.bottom);
  lines.forEach((one, index) => {
    if (at < one.xs.length && (line === null || line === index)) plotRing(pen, plot.x(one.xs[at]), plot.y(one.ys[at]), 3.5, drawn[index].colour, colours);
  });
}

function nearestPoint({ lines }, value) {
  const { xs } = lines.reduce((most, one) => (one.xs.length > most.xs.length ? one : most));
  let best = 0;
  for (let k = 1; k < xs.length; k++) if (Math.abs(xs[k] - value) < Math.abs(xs[best] - value)) best = k;
  return best;
}

function curveReading({ meta, lines }, { at, line }, drawn) {
  if (at === null) return [meta.note];
  const longest = lines.reduce((most, one) => (one.xs.length > most.xs.length ? one : most));
  const place = longest.xs[at];
  const half = (meta.width - 1) / 2;
  const where = meta.width > 1 ? `${groupDigits(Math.max(meta.first, place - half))} to ${groupDigits(place + half)}` : groupDigits(place);
  const parts = [`${meta.x_word} `, element("b", { class: "number" }, where), ": "];
  const order = lines.map((_, index) => index).filter((index) => at < lines[index].xs.length);
  order.sort((a, b) => lines[b].ys[at] - lines[a].ys[at]);
  order.forEach((index, k) => {
    const { name, ys, errors } = lines[index];
    const spread = Number.isFinite(errors[at]) ? ` ± ${decimals(errors[at], meta.digits)}` : "";
    const text = `${decimals(ys[at], meta.digits)}${spread}`;
    const swatch = element("i", { class: "swatch", style: `background:${drawn[index].colour}`, "aria-hidden": "true" });
    parts.push(k ? ", " : "", element("span", { class: index === line ? "number chosen" : "number" }, swatch, `${name} ${text}`));
  });
  return meta.unit ? [...parts, ` ${meta.unit}`] : parts;
}

// A row for each position of the longest line; beside each line its error, where it has one.
function curveRows({ meta, lines }) {
  const columns = lines.flatMap(({ name, ys, errors }) => {
    const title = name || meta.y_title.replace(/, log scale$/, "");
    return [[title, ys], ...(errors.some(Number.isFinite) ? [[`${title}, ${meta.spread}`, errors]] : [])];
  });
  const { xs } = lines.reduce((most, one) => (one.xs.length > most.xs.length ? one : most));
  const head = [meta.x_title.replace(/ →$/, ""), ...columns.map(([title]) => title)];
  return [head, ...Array.from(xs, (x, at) => [x, ...columns.map(([, values]) => values[at])])];
}
