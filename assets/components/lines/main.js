// Lines on two axes: rings of the current setting are calculated, discs are measured. The pointer or left and right read a place.

export default function ({ data, parentElement }) {
  const host = parentElement.querySelector(".gb");
  const state = mounted(parentElement, () => ({ at: null, shown: null, stop: () => {} }));
  state.stop();
  const payload = unpack(data);
  state.shown = atStops(payload) ?? state.shown ?? payload;
  let chart = readLines(state.shown);
  let places = linePlaces(chart);
  let plot = null;
  const canvas = element("canvas", { tabindex: 0, role: "application", "aria-roledescription": "chart", "aria-label": chart.meta.label });
  const reading = element("div", { class: "note reading", "aria-live": "polite" });
  const colours = themeColours(host);
  const saves = figureSaves(chart.meta.file, () => [canvas], () => lineRows(chart), colours);
  const root = element("div", { class: "lines" }, canvas, reading, saves);
  host.replaceChildren(root);

  function draw() {
    const width = Math.floor(root.clientWidth);
    if (!width) return;
    const { meta } = chart;
    const series = seriesColours(host);
    const lines = chart.lines.map((line, index) => drawnLine(line, index, series, colours));
    const axes = lineAxes(chart, width);
    const limits = meta.limits.map(([y, label]) => ({ y, label }));
    const verticals = meta.current === null ? [] : [{ x: meta.current, label: "" }];
    const drawn = lines.flatMap((line) => (line.joined ? [line] : Array.from(line.xs, (x, k) => ({ ...line, name: "", xs: [x], ys: [line.ys[k]] }))));
    plot = drawPlot(canvas, width, width < 560 ? 320 : meta.height, { ...axes, xTitle: meta.x.title, yTitle: meta.y.title, lines: drawn, limits, verticals }, colours);
    const pen = canvas.getContext("2d");
    const at = state.at === null ? meta.current : places[state.at];
    if (state.at !== null) {
      pen.strokeStyle = colours.accent;
      plotSegment(pen, Math.round(plot.x(at)) + 0.5, plot.top, Math.round(plot.x(at)) + 0.5, plot.bottom);
    }
    if (at !== null)
      lines.forEach((line) => {
        const y = lineAt(line, at, meta);
        if (Number.isFinite(y) && !line.discs) plotRing(pen, plot.x(at), plot.y(y), 4, line.colour, colours);
      });
    reading.replaceChildren(...lineReading(lines, at, meta));
    root.dataset.at = at ?? "";
  }

  function choose(at) {
    if (at === state.at) return;
    state.at = at;
    draw();
  }
  canvas.onpointermove = (event) => {
    if (!plot || !places.length) return;
    const px = event.clientX - canvas.getBoundingClientRect().left;
    const gaps = places.map((place) => Math.abs(plot.x(place) - px));
    choose(gaps.indexOf(Math.min(...gaps)));
  };
  canvas.onpointerleave = () => choose(null);
  canvas.onkeydown = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    choose(state.at === null ? 0 : Math.max(0, Math.min(places.length - 1, state.at + step)));
  };
  if (state.at >= places.length) state.at = null;
  draw();
  whenFontsLoad(draw);
  const stopWidth = onWidth(root, draw);
  const stopStops = onStops(payload, () => {
    const now = atStops(payload);
    if (!now) return;
    state.shown = now;
    chart = readLines(now);
    places = linePlaces(chart);
    if (state.at >= places.length) state.at = null;
    draw();
  });
  state.stop = () => {
    stopWidth();
    stopStops();
  };
  return () => {
    state.stop();
    unmount(parentElement);
  };
}

const linePlaces = ({ lines }) => [...new Set(lines.flatMap((line) => Array.from(line.xs)))].sort((a, b) => a - b);

function readLines({ meta, arrays }) {
  return { meta, lines: meta.lines.map((spec, index) => ({ ...spec, xs: arrays[2 * index].data, ys: arrays[2 * index + 1].data })) };
}

function drawnLine(line, index, series, colours) {
  const dash = line.dash || index > 3 ? "dash" : "solid";
  return { ...line, colour: line.discs ? colours.measured : series[index % series.length], dash, width: line.discs ? 1.25 : 1.75 };
}

function lineAxes({ meta, lines }, width) {
  const axis = (spec, values, most, pad) => {
    const seen = values.filter((value) => Number.isFinite(value) && (!spec.log || value > 0));
    let [low, high] = seen.length ? [Math.min(...seen), Math.max(...seen)] : [0, 1];
    if (spec.log) {
      if (pad || low === high) [low, high] = [low / 1.25, high * 1.25];
    } else if (pad) {
      const room = 0.06 * (high - low || 1);
      [low, high] = [spec.zero ? Math.min(0, low) : low - room, high + room];
    }
    const made = plotAxis(low, high, { log: spec.log, most });
    const own = spec.ticks.filter(([value]) => value >= low && value <= high);
    if (own.length) made.ticks = own.filter((_, k) => k % Math.ceil(own.length / most) === 0);
    return made;
  };
  const xs = lines.flatMap((line) => Array.from(line.xs));
  const ys = [...lines.flatMap((line) => Array.from(line.ys)), ...meta.limits.map(([value]) => value)];
  return { x: axis(meta.x, xs, width < 560 ? 4 : 7, meta.x.pad), y: axis(meta.y, ys, 5, true) };
}

// The height of a line at x, along the segment as it is drawn; NaN outside.
function lineAt({ xs, ys }, x, { x: across, y: up }) {
  for (let k = 0; k < xs.length; k++) {
    if (xs[k] === x) return ys[k];
    if (k && xs[k - 1] < x && x < xs[k]) {
      const along = across.log ? Math.log : (value) => value;
      const share = (along(x) - along(xs[k - 1])) / (along(xs[k]) - along(xs[k - 1]));
      return up.log ? ys[k - 1] * (ys[k] / ys[k - 1]) ** share : ys[k - 1] + share * (ys[k] - ys[k - 1]);
    }
  }
  return NaN;
}

function lineReading(lines, at, meta) {
  if (at === null) return [meta.note];
  const read = lines.map((line) => ({ line, y: lineAt(line, at, meta) })).filter(({ y }) => Number.isFinite(y));
  read.sort((a, b) => b.y - a.y);
  const parts = read.map(({ line, y }, k) => [
    k ? ", " : "",
    element("i", { class: line.discs ? "swatch disc" : "swatch", style: `background:${line.colour}`, "aria-hidden": "true" }),
    element("span", { class: "number" }, `${line.said} ${significant(y, 3)}`),
  ]);
  return [`${meta.x.word} `, element("b", { class: "number" }, placeText(at, meta.x)), ": ", ...parts.flat(), meta.y.unit ? ` ${meta.y.unit}` : ""];
}

function placeText(at, { whole, ticks }) {
  if (whole) return groupDigits(at);
  return ticks.find(([value]) => value === at)?.[1] ?? significant(at, 4);
}

function lineRows({ meta, lines }) {
  const head = ["series", meta.x.title, meta.y.title];
  return [head, ...lines.flatMap((line) => Array.from(line.xs, (x, k) => [line.said, x, line.ys[k]]))];
}
