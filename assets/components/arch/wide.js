// The diagram across the page: the residual stream is the spine, sublayers hang off it and return into a plus.

const WIDE = { spine: 96, row: 92 };
const DENSITIES = [
  { loopPad: 14, loopEnd: 16, gap: 12, between: 22 },
  { loopPad: 8, loopEnd: 8, gap: 8, between: 9 },
];

// {svg, from, to} with the block between `from` and `to`; null if it cannot be drawn within `width`.
function wideDiagram(meta, width, measure, links) {
  for (const density of DENSITIES) {
    const drawn = wideIfItFits(meta, width, density, measure, links);
    if (drawn) return drawn;
  }
  return null;
}

function wideIfItFits(meta, width, density, measure, links) {
  const sublayers = meta.block.sublayers;
  const loops = sublayers.map((nodes) => loopWidth(nodes, density, measure));
  const before = meta.before.map((node) => columnWidth(node, measure));
  const after = meta.after.map((node) => columnWidth(node, measure));
  const gaps = before.length + after.length + loops.length - 1;
  const natural = sum(before) + sum(after) + sum(loops) + gaps * density.between;
  if (natural > width) return null;
  const room = density.between + ((width - natural) * 0.35) / gaps;
  const slack = ((width - natural) * 0.65) / loops.length;
  const plan = { ...density, loops: loops.map((loop) => loop + slack), before, after, room, slack };
  return layWide(meta, width, plan, measure, links);
}

const sum = (values) => values.reduce((total, value) => total + value, 0);

function loopWidth(nodes, density, measure) {
  const inner = sum(nodes.map((node) => columnWidth(node, measure))) + density.gap * (nodes.length - 1);
  return inner + 2 * density.loopPad + density.loopEnd + NODE.plus;
}

function layWide(meta, width, plan, measure, links) {
  const y = WIDE.spine;
  const row = y + WIDE.row;
  const shapes = [];
  const onSpine = (node, x) => {
    shapes.push(
      nodeBox(node, x, y, nodeWidth(node, measure), links),
      ...underNode(node, x, y + (isBare(node) ? 22 : NODE.height / 2 + 15), links),
    );
  };
  let x = 0;
  meta.before.forEach((node, index) => {
    onSpine(node, x + plan.before[index] / 2);
    x += plan.before[index] + plan.room;
  });
  const from = x;
  const spineFrom = meta.before.length > 1 ? from - plan.room - plan.before.at(-1) / 2 : 0;
  const thinFrom = plan.before[0] + 6;
  plan.loops.forEach((loop, index) => {
    shapes.push(...wideLoop(meta.block.sublayers[index], x, loop, y, row, plan, measure, links));
    x += loop + plan.room;
  });
  const to = x - plan.room;
  const first = x;
  meta.after.forEach((node, index) => {
    onSpine(node, x + plan.after[index] / 2);
    x += plan.after[index] + plan.room;
  });
  const logits = width - plan.after.at(-1);
  const lower = Math.max(...meta.block.sublayers.flat().map((node) => linesUnder(node).length));
  const height = row + NODE.height / 2 + NODE.line * lower + 10;
  const bare = [...meta.before, ...meta.after].filter(isBare);
  const svg = svgElement("svg", {
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    role: "group",
    "aria-label": diagramInWords(meta),
  });
  svg.append(
    svgLine(thinFrom, y, spineFrom, y),
    svgLine(spineFrom, y, first + plan.after[0] / 2, y, { "stroke-width": 2 }),
    svgLine(first + plan.after[0] / 2, y, logits - 6, y),
    ...blockBracket(meta, from, to, y, measure),
    svgQuiet((from + to) / 2, y - 12, `residual stream ${meta.residual}`, { "text-anchor": "middle" }),
    ...shapes,
    ...samplerBelow(meta.sampler, width, y, row, bare.length ? 34 : 22, measure, links),
  );
  return { svg, from, to };
}

function blockBracket(meta, from, to, y, measure) {
  const note = meta.block.note ? `; ${meta.block.note}` : "";
  const count = `× ${meta.block.count}, each ${meta.block.parameters} parameters${note}`;
  const x = from + measure("Block", "18px") + 12;
  return [
    svgPath(`M${from + 0.5} ${y - 50}V${y - 61.5}H${to - 0.5}V${y - 50}`, { stroke: "var(--rule)" }),
    svgLabel(from, y - 71, "Block", { style: "font-family:var(--serif)", "font-size": 18 }),
    svgQuiet(x, y - 71, count, { "font-size": 12 }),
  ];
}

function wideLoop(nodes, from, width, y, row, plan, measure, links) {
  const start = from + plan.loopPad / 2;
  const share = plan.slack / (nodes.length + 1);
  const end = from + width - NODE.plus;
  const shapes = [
    svgPath(
      `M${start} ${y}V${row - 6}Q${start} ${row} ${start + 6} ${row}H${end - 6}Q${end} ${row} ${end} ${row - 6}V${y + NODE.plus}`,
    ),
  ];
  let x = start + plan.loopPad + share;
  for (const node of nodes) {
    const column = columnWidth(node, measure);
    const centre = x + column / 2;
    shapes.push(
      nodeBox(node, centre, row, nodeWidth(node, measure), links),
      ...underNode(node, centre, row + NODE.height / 2 + 15, links),
    );
    x += column + plan.gap + share;
  }
  return [...shapes, ...svgPlus(end, y)];
}

const underNode = (node, x, y, links) =>
  linesUnder(node).map((line, index) => svgUnder(line, x, y + index * NODE.line, links));

// The logits go down into the sampler, whose token is one more id at the start.
function samplerBelow(node, width, y, row, drop, measure, links) {
  const box = nodeWidth(node, measure);
  const x = width - box / 2 - 1;
  const tip = row - NODE.height / 2;
  return [
    svgPath(`M${x} ${y + drop}V${tip - 1}M${x - 4} ${tip - 7}L${x} ${tip - 1}L${x + 4} ${tip - 7}`),
    nodeBox(node, x, row, box, links),
    ...linesUnder(node).map((line, index) =>
      svgUnder(line, width - 1, row + NODE.height / 2 + 15 + index * NODE.line, links, "end"),
    ),
  ];
}

function diagramInWords(meta) {
  const names = (nodes) => nodes.map((node) => node.name).join(", ");
  const block = meta.block.sublayers.map(names).join("; then ");
  return `Forward path: ${names(meta.before)}; ${meta.block.count} blocks of ${block}; ${names(meta.after)}; ${meta.sampler.name}`;
}
