// The diagram down a narrow page: the spine is vertical, shapes and parameters stand to the right of the boxes.

const TALL = { spine: 9, box: 36, indent: 34 };

function tallDiagram(meta, width, measure, links) {
  const shapes = [];
  const all = [...meta.before, ...meta.block.sublayers.flat(), ...meta.after, meta.sampler];
  const box = Math.min(
    width * 0.42,
    Math.max(...all.map((node) => measure(node.name, NODE_FONT.name))) + 2 * NODE.padding + 8,
  );
  const state = { y: 8, box, shapes, links };
  meta.before.forEach((node) => tallNode(state, node, TALL.spine - 9));
  const top = state.y + 2;
  shapes.push(
    svgLabel(TALL.indent, top + 15, "Block", { style: "font-family:var(--serif)", "font-size": 17 }),
    svgQuiet(
      TALL.indent + measure("Block", "17px") + 12,
      top + 15,
      `× ${meta.block.count}, each ${meta.block.parameters}`,
      { "font-size": 12 },
    ),
  );
  state.y = top + 34;
  for (const line of (meta.block.note || "").split("; ").filter(Boolean)) {
    shapes.push(svgQuiet(TALL.indent, state.y - 1, line, { "font-size": 12 }));
    state.y += 18;
  }
  for (const nodes of meta.block.sublayers) tallLoop(state, nodes);
  shapes.push(svgPath(`M${width - 9} ${top}H${width - 1}V${state.y - 8}H${width - 9}`, { stroke: "var(--rule)" }));
  shapes.push(svgQuiet(TALL.spine + 14, state.y + 4, `residual stream ${meta.residual}`, {}));
  state.y += 20;
  meta.after.forEach((node) => tallNode(state, node, TALL.spine - 9));
  const end = state.y - 14;
  tallNode(state, meta.sampler, TALL.spine - 9);
  const height = state.y;
  const svg = svgElement("svg", {
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    role: "group",
    "aria-label": diagramInWords(meta),
  });
  svg.append(svgLine(TALL.spine, 14, TALL.spine, end + 14, { "stroke-width": 2 }), ...shapes);
  return svg;
}

// One node at the pen's height, its texts to the right; the pen moves below it.
function tallNode(state, node, x) {
  const texts = [...(node.detail ? [{ text: node.detail }] : []), ...linesUnder(node)];
  const height = isBare(node) ? 30 : TALL.box;
  const centre = state.y + height / 2;
  if (isBare(node)) {
    state.shapes.push(
      state.links.wrap(node, [
        svgLabel(TALL.indent, centre + 4, node.name, { "font-weight": 500, class: "node-name" }),
      ]),
    );
  } else {
    const rect = svgElement("rect", {
      x,
      y: state.y,
      width: state.box,
      height: TALL.box,
      rx: 2,
      fill: "var(--background)",
      stroke: "var(--ink)",
    });
    const name = svgLabel(x + NODE.padding, centre + 4, node.name, { "font-weight": 500, class: "node-name" });
    state.shapes.push(state.links.wrap(node, [rect, name]));
  }
  const left = isBare(node) ? TALL.indent + state.box * 0.72 : x + state.box + 12;
  const first = texts.length > 1 ? state.y + 12 : centre + 4;
  texts.forEach((line, index) => state.shapes.push(svgUnder(line, left, first + index * NODE.line, state.links, "start")));
  state.y += Math.max(height, texts.length * NODE.line) + 12;
}

function tallLoop(state, nodes) {
  const top = state.y;
  const lead = TALL.indent + 22;
  state.y += 14;
  const before = state.shapes.length;
  nodes.forEach((node) => tallNode(state, node, TALL.indent));
  const y = state.y + 4;
  const path = `M${TALL.spine} ${top}H${lead - 6}Q${lead} ${top} ${lead} ${top + 6}V${y - 6}Q${lead} ${y} ${lead - 6} ${y}H${TALL.spine + NODE.plus}`;
  state.shapes.splice(before, 0, svgPath(path));
  state.shapes.push(...svgPlus(TALL.spine, y));
  state.y = y + 24;
}
