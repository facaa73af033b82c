// Where the parameters are: a hollow bar (calculated) over a solid one (counted), and direct labels that never overlap.

const SHARE = { bar: 10, gap: 3, left: 96, wide: 560, columnGap: 18 };

function sharesFigure(shares, width, measure) {
  const counted = shares.every((share) => share.counted != null);
  const total = Math.max(
    sum(shares.map((share) => share.calculated)),
    sum(shares.map((share) => share.counted ?? 0)),
    1,
  );
  const labels = shares.map((share) => shareLabel(share, sum(shares.map((other) => other.calculated)), counted));
  const needed = sum(labels.map((label) => labelWidth(label, measure))) + SHARE.columnGap * (labels.length - 1);
  const wide = width >= SHARE.wide && needed <= width - SHARE.left;
  const left = wide ? SHARE.left : 0;
  const top = wide ? [2, 22] : [18, 52];
  const scale = (width - left - SHARE.gap * (shares.length - 1) - 2) / total;
  const height = wide ? 108 : 84 + shares.length * 26;
  const svg = svgElement("svg", {
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
    "aria-label": sharesInWords(shares),
    class: "shares",
  });
  const words = ["calculated", counted ? "counted" : "no weights"];
  words.forEach((word, row) => svg.append(svgQuiet(0, top[row] + (wide ? 9.5 : -7), word, { "font-size": 12.5 })));
  const edges = hollowBar(svg, shares, left, top[0], scale);
  if (counted) solidBar(svg, shares, left, top[1], scale);
  else noBar(svg, left, top[1], width - left);
  if (wide) labelRow(svg, labels, edges, left, width, top[1] + SHARE.bar, measure);
  else labelList(svg, labels, width, top[1] + 36, measure);
  return svg;
}

// [name, number, percentage]; the number says both where they differ.
function shareLabel(share, total, counted) {
  const part = (100 * share.calculated) / total;
  const percentage = part > 0 && part < 0.01 ? "< 0.01" : decimals(part, part < 1 ? 2 : 1);
  const lines = [share.name, groupDigits(share.calculated), `${percentage} %`];
  if (counted && share.counted !== share.calculated) lines[2] = `counted ${groupDigits(share.counted)}`;
  return lines;
}

const labelWidth = (lines, measure) =>
  Math.max(measure(lines[0], "500 12.5px"), ...lines.slice(1).map((line) => measure(line, "12px")));

// Returns [start, end] of each slice. A slice too thin for an outline is filled.
function hollowBar(svg, shares, left, y, scale) {
  let x = left;
  return shares.map((share) => {
    const width = Math.max(1.5, share.calculated * scale);
    const wide = width > 4;
    const inset = wide ? 0.75 : 0;
    svg.append(
      svgElement("rect", {
        x: x + inset,
        y: y + inset,
        width: width - 2 * inset,
        height: SHARE.bar - 2 * inset,
        fill: wide ? "none" : "var(--accent)",
        stroke: wide ? "var(--accent)" : "none",
        "stroke-width": 1.5,
        class: "calculated-bar",
        "data-value": share.calculated,
      }),
    );
    const edge = [x, x + width];
    x += width + SHARE.gap;
    return edge;
  });
}

function solidBar(svg, shares, left, y, scale) {
  let x = left;
  for (const share of shares) {
    const width = Math.max(1.5, share.counted * scale);
    svg.append(
      svgElement("rect", {
        x,
        y,
        width,
        height: SHARE.bar,
        fill: "var(--measured)",
        class: "counted-bar",
        "data-value": share.counted,
      }),
    );
    x += width + SHARE.gap;
  }
}

function noBar(svg, left, y, width) {
  const place = { x: left + 0.5, y: y + 0.5, width: width - 1, height: SHARE.bar - 1 };
  svg.append(
    svgElement("rect", {
      ...place,
      fill: "none",
      stroke: "var(--rule)",
      "stroke-dasharray": "3 3",
      class: "not-counted",
    }),
  );
}

// Labels under the slices they name: each starts at its slice, pushed right by its neighbour and left by the edge.
function labelRow(svg, labels, edges, left, width, y, measure) {
  const widths = labels.map((label) => labelWidth(label, measure));
  const starts = edges.map(([start]) => start);
  for (let index = 1; index < starts.length; index++) {
    starts[index] = Math.max(starts[index], starts[index - 1] + widths[index - 1] + SHARE.columnGap);
  }
  for (let index = starts.length - 1, limit = width; index >= 0; index--) {
    starts[index] = Math.max(left, Math.min(starts[index], limit - widths[index]));
    limit = starts[index] - SHARE.columnGap;
  }
  labels.forEach((lines, index) => {
    const [from, to] = edges[index];
    const tick = Math.max(from + 0.5, Math.min((from + to) / 2, starts[index] + 0.5));
    const target = Math.max(starts[index], Math.min(tick, starts[index] + widths[index]));
    svg.append(svgPath(`M${tick} ${y + 3}v3L${target} ${y + 15}v2`, { stroke: "var(--rule)" }));
    svg.append(svgLabel(starts[index], y + 32, lines[0], { "font-weight": 500, class: "share-name" }));
    lines
      .slice(1)
      .forEach((line, row) => svg.append(svgQuiet(starts[index], y + 49 + row * 16, line, { "font-size": 12 })));
  });
}

function labelList(svg, labels, width, y, measure) {
  const second = width - 18 - Math.max(...labels.map((lines) => measure(lines[1], "12.5px")));
  labels.forEach(([name, ...numbers], index) => {
    const row = y + index * 26;
    svg.append(svgLine(0, row - 17.5, width, row - 17.5, { stroke: "var(--hairline)" }));
    svg.append(svgLabel(0, row, name, { "font-weight": 500, class: "share-name" }));
    svg.append(svgQuiet(width, row, numbers[0], { "text-anchor": "end", "font-size": 12.5 }));
    svg.append(svgQuiet(second, row, numbers[1], { "text-anchor": "end", "font-size": 12.5 }));
  });
}

function sharesInWords(shares) {
  const words = shares.map(
    (share) => `${share.name} ${share.calculated}${share.counted == null ? "" : `, counted ${share.counted}`}`,
  );
  return `Parameters by component, calculated: ${words.join("; ")}`;
}
