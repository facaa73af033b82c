// The measured trace under the diagram: length of the residual vector after the embedding and after each block.

const TRACE = { height: 128, top: 12, left: 62, right: 150 };

// `view` is {index, block}: the column of the lengths that is shown, and the block that is read (null for none).
// `place` is {from, to}, the horizontal extent of the block in the diagram above.
function traceFigure(meta, norms, width, place, view, choose) {
  const rows = meta.layers + 1;
  const count = norms.shape[1];
  const at = (row, index) => norms.data[row * count + index];
  const bottom = TRACE.top + TRACE.height;
  const svg = svgElement("svg", { width, height: bottom + 30, viewBox: `0 0 ${width} ${bottom + 30}`, class: "trace" });
  const x = (row) => place.from + ((place.to - place.from) * row) / (rows - 1);
  blockAxis(svg, rows, x, bottom, place, width);
  if (!count) {
    emptyTrace(svg, place, meta.tokens);
    return svg;
  }
  const series = Array.from({ length: rows }, (_, row) => [at(row, view.index), at(row, 0)]);
  const shown = series.flat().filter((value) => Number.isFinite(value) && value > 0);
  const low = shown.length ? Math.floor(Math.log10(Math.min(...shown))) : 0;
  const high = shown.length ? Math.max(low + 1, Math.log10(Math.max(...shown)) + 0.12) : 1;
  const y = (value) => bottom - (TRACE.height * (Math.log10(Math.max(value, 10 ** low)) - low)) / (high - low);
  decadeLines(svg, low, high, y, place);
  const radius = Math.max(1.5, Math.min(3, ((place.to - place.from) / rows) * 0.32));
  const dot = (row, value, fill, size) =>
    Number.isFinite(value)
      ? svgElement("circle", { cx: x(row), cy: y(value), r: size, fill, "data-row": row, "data-value": value })
      : null;
  const first = svgElement(
    "g",
    { class: "first" },
    series.map(([, value], row) => dot(row, value, "var(--ink3)", radius * 0.75)),
  );
  const selected = svgElement(
    "g",
    { class: "selected" },
    series.map(([value], row) => dot(row, value, "var(--measured)", radius)),
  );
  if (view.index) svg.append(first);
  svg.append(selected);
  endLabels(svg, meta, series, view, place, y);
  const broken = series.flat().filter((value) => !Number.isFinite(value)).length;
  if (broken)
    svg.append(
      svgQuiet(place.from, TRACE.top - 2, `${broken} of these lengths are not finite`, { style: "fill:var(--bad)" }),
    );
  readBlocks(svg, { x, bottom, rows, place, view, choose });
  return svg;
}

function blockAxis(svg, rows, x, bottom, place, width) {
  svg.append(svgLine(place.from, bottom, place.to, bottom, { stroke: "var(--rule)" }));
  const pitch = (place.to - place.from) / (rows - 1);
  const each = [1, 5, 10, 20, 50].find((step) => step * pitch >= 34) ?? 100;
  const minor = pitch >= 5 ? 1 : each;
  for (let row = 0; row < rows; row += minor) {
    svg.append(svgLine(x(row), bottom, x(row), bottom + (row % each ? 3 : 6), { stroke: "var(--rule)" }));
    if (row % each === 0)
      svg.append(svgQuiet(x(row), bottom + 20, row ? String(row) : "emb", { "text-anchor": "middle" }));
  }
  const roomy = width - place.to > 90;
  svg.append(
    svgQuiet(roomy ? place.to + 14 : place.to, bottom + (roomy ? 20 : -6), "after block", {
      "text-anchor": roomy ? "start" : "end",
    }),
  );
}

function decadeLines(svg, low, high, y, place) {
  const each = high - low > 6 ? 2 : 1;
  for (let power = low; power <= high; power += each) {
    if (power > low)
      svg.append(svgLine(place.from, y(10 ** power), place.to, y(10 ** power), { stroke: "var(--hairline)" }));
    svg.append(svgQuiet(place.from - 12, y(10 ** power) + 4, decadeText(power), { "text-anchor": "end" }));
  }
}

const decadeText = (power) =>
  power >= 0 && power < 6
    ? groupDigits(10 ** power)
    : power < 0 && power > -4
      ? (10 ** power).toFixed(-power)
      : scientific(10 ** power, 0);

// What each series is and where it ends, at the right of its last point, kept apart; below the trace on a narrow page.
function endLabels(svg, meta, series, view, place, y) {
  const [last, lastFirst] = series.at(-1);
  const position = meta.positions[view.index];
  const peak = series.reduce((best, [, value], row) => (value > series[best][1] ? row : best), 0);
  const labels = [
    { y: y(last), text: `position ${position}: ${lengthText(last)}`, colour: "var(--measured)", weight: 500 },
  ];
  if (view.index) {
    const top =
      series[peak][1] > 2 * lastFirst
        ? `at most ${lengthText(series[peak][1])}, after ${peak ? `block ${peak}` : "the embedding"}`
        : null;
    labels.push({
      y: y(lastFirst),
      text: `position 0: ${lengthText(lastFirst)}`,
      below: top,
      colour: "var(--ink2)",
      weight: 400,
    });
  }
  if (svg.getAttribute("width") - place.to < 120) return;
  labels.sort((a, b) => a.y - b.y);
  let free = -Infinity;
  for (const label of labels) {
    const baseline = Math.max(label.y + 4, free);
    svg.append(
      svgLabel(place.to + 14, baseline, label.text, { style: `fill:${label.colour}`, "font-weight": label.weight }),
    );
    if (label.below) svg.append(svgQuiet(place.to + 14, baseline + 16, label.below));
    free = baseline + (label.below ? 34 : 18);
  }
}

const lengthText = (value) =>
  Number.isFinite(value) ? decimals(value, value >= 100 ? 0 : value >= 1 ? 1 : 3) : notFinite(value);

function emptyTrace(svg, place, tokens) {
  const id = "not-computed";
  const dot = svgElement("circle", { cx: 3.5, cy: 3.5, r: 0.8, fill: "var(--rule)" });
  svg.append(
    svgElement("defs", {}, svgElement("pattern", { id, width: 7, height: 7, patternUnits: "userSpaceOnUse" }, dot)),
    svgElement("rect", {
      class: "not-computed",
      x: place.from,
      y: TRACE.top,
      width: place.to - place.from,
      height: TRACE.height - 4,
      fill: `url(#${id})`,
    }),
    svgQuiet(
      place.from,
      TRACE.top - 3,
      tokens ? "not computed: no weights are loaded" : "not computed: the prompt is empty",
    ),
  );
  svg.setAttribute("data-state", "empty");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "Length of the residual vector after each block: not computed");
}

// Pointing at a block, or walking with the arrow keys, reads it.
function readBlocks(svg, { x, bottom, rows, place, view, choose }) {
  const line = svgLine(0, TRACE.top, 0, bottom, { stroke: "var(--ink2)", visibility: "hidden", class: "reading-line" });
  const mark = (row) => {
    line.setAttribute("visibility", row == null ? "hidden" : "visible");
    if (row != null) for (const end of ["x1", "x2"]) line.setAttribute(end, x(row));
  };
  const read = (row) => {
    view.block = row;
    mark(row);
    choose(row);
  };
  svg.append(line);
  svg.setAttribute("tabindex", 0);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "Length of the residual vector after each block; arrow keys read the blocks");
  svg.onpointermove = (event) => {
    const inside = event.clientX - svg.getBoundingClientRect().left;
    const row = Math.round(((inside - place.from) / (place.to - place.from)) * (rows - 1));
    read(row < 0 || row >= rows ? null : row);
  };
  svg.onpointerleave = () => read(null);
  svg.onkeydown = (event) => {
    const from = view.block ?? -1;
    const to = { ArrowRight: from + 1, ArrowLeft: from - 1, Home: 0, End: rows - 1 }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    read(Math.max(0, Math.min(rows - 1, to)));
  };
  if (view.block != null && view.block < rows) mark(view.block);
}
