// The roofline: at most the bandwidth's slope, at most the peak. Rings are calculated and lie on a roof; discs were timed.

export default function ({ data, parentElement }) {
  const host = parentElement.querySelector(".gb");
  const state = mounted(parentElement, () => ({ stop: () => {} }));
  state.stop();
  const { meta, arrays } = unpack(data);
  const paths = meta.paths.map((path, index) => ({ ...path, xs: arrays[2 * index].data, ys: arrays[2 * index + 1].data }));
  const canvas = element("canvas", { role: "img", "aria-label": meta.label });
  const legend = element("p", { class: "note" }, meta.note);
  const colours = themeColours(host);
  const root = element("div", { class: "roofline" }, canvas, legend, figureSaves(meta.file, () => [canvas], () => rooflineRows(meta, paths), colours));
  root.dataset.mark = meta.mark;
  host.replaceChildren(root);

  function draw() {
    const width = Math.floor(root.clientWidth);
    if (!width) return;
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

  draw();
  whenFontsLoad(draw);
  state.stop = onWidth(root, draw);
  return () => {
    state.stop();
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
