// The roofline: at most the bandwidth's slope, at most the peak. Rings are calculated and lie on a roof; discs were timed.
// It follows the page's sliders while a thumb moves.

function buildRoofline(host) {
  const view = { meta: null, paths: [], colours: themeColours(host), stop: () => {} };
  view.canvas = element("canvas", { role: "img" });
  view.legend = element("p", { class: "note" });
  const saves = figureSaves(
    () => view.meta.file,
    () => [view.canvas],
    () => rooflineRows(view.meta, view.paths),
    () => view.colours,
  );
  view.root = element("div", { class: "roofline" }, view.canvas, view.legend, saves);
  host.replaceChildren(view.root);
  return view;
}

function drawRoofline({ root, canvas, meta, paths, colours }) {
  const width = Math.floor(root.clientWidth);
  if (!width || !meta) return;
  const narrow = width < 560;
  const x = plotAxis(...meta.x, { log: true, most: narrow ? 4 : 7 });
  const y = plotAxis(...meta.y, { log: true, most: 5, text: rate });
  const shades = [colours.accent, colours.measured];
  const roofs = meta.roofs.map((roof) => ({ name: narrow ? "" : roof.name, colour: roof.timed ? shades[1] : shades[0], ...roofLine(roof, meta.x, meta.y), dash: roof.timed ? "dash" : "solid" }));
  const swept = paths.map((path) => ({ name: "", xs: path.xs, ys: path.ys, colour: colours.rule, width: 4 }));
  const plot = drawPlot(canvas, width, narrow ? 320 : 400, { x, y, xTitle: "FLOPs a byte moved, log scale", yTitle: "FLOP/s, log scale", lines: [...swept, ...roofs] }, colours);
  const pen = canvas.getContext("2d");
  for (const point of meta.points) drawPoint(pen, plot, point, colours);
}

export default function ({ data, parentElement }) {
  const host = parentElement.querySelector(".gb");
  const view = mounted(parentElement, () => buildRoofline(host));
  view.stop();
  view.colours = themeColours(host);
  const payload = unpack(data);
  const draw = () => drawRoofline(view);
  const follow = () => {
    const now = atStops(payload);
    if (!now) return;
    view.meta = now.meta;
    view.paths = now.meta.paths.map((path, index) => ({ ...path, xs: now.arrays[2 * index].data, ys: now.arrays[2 * index + 1].data }));
    view.canvas.setAttribute("aria-label", now.meta.label);
    view.legend.textContent = now.meta.note;
    view.root.dataset.mark = now.meta.mark;
    draw();
  };
  follow();
  whenFontsLoad(draw);
  const ends = [onWidth(view.root, draw), onStops(payload, follow)];
  view.stop = () => ends.forEach((end) => end());
  return () => {
    view.stop();
    unmount(parentElement);
  };
}

const RATES = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
function rate(value) {
  const [size, prefix] = RATES.find(([least]) => value >= least * 0.999) ?? [1, ""];
  return `${significant(value / size, 3)} ${prefix}FLOP/s`;
}

// The roof inside the axes: along the slope, then level; without a peak the slope alone.
function roofLine({ peak, bandwidth }, [low, high], [floor, ceiling]) {
  const from = Math.max(low, floor / bandwidth);
  const top = Math.min(peak ?? Infinity, ceiling);
  const ridge = Math.min(high, top / bandwidth);
  const xs = [from, ridge, ...(peak !== null && ridge < high ? [high] : [])];
  return { xs, ys: xs.map((x) => Math.min(peak ?? Infinity, x * bandwidth)) };
}

function drawPoint(pen, plot, point, colours) {
  const [at, up] = [plot.x(point.x), plot.y(point.y)];
  if (point.timed) {
    pen.fillStyle = colours.measured;
    pen.beginPath();
    pen.arc(at, up, 5, 0, 2 * Math.PI);
    pen.fill();
  } else plotRing(pen, at, up, 5, colours.accent, colours);
  pen.font = `500 12.5px ${colours.sans}`;
  const room = pen.measureText(point.name).width + 12;
  const before = at + room > plot.right;
  pen.textAlign = before ? "right" : "left";
  plotHalo(pen, point.name, at + (before ? -10 : 10), up + 15, point.timed ? colours.measured : colours.accent, colours);
}

function rooflineRows(meta, paths) {
  const head = ["what", "FLOPs a byte", "FLOP/s"];
  return [head, ...meta.points.map((point) => [point.name, point.x, point.y]), ...paths.flatMap((path) => Array.from(path.xs, (x, k) => [path.name, x, path.ys[k]]))];
}
