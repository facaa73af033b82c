// Drawing the tree: the run as it is in ink on the accent's ground, what was left behind in grey.

const fittedLabel = (pen, label, width) => {
  if (pen.measureText(label).width <= width) return label;
  let cut = [...label];
  while (cut.length > 1 && pen.measureText(`${cut.join("")}…`).width > width) cut = cut.slice(0, -1);
  return `${cut.join("")}…`;
};

// `at`: the node that is read, null for none.
function drawTree(canvas, tree, layout, at, colours) {
  const pen = fitCanvas(canvas, layout.width, layout.height);
  pen.textBaseline = "middle";
  drawSteps(pen, layout, colours);
  pen.font = `11px ${colours.sans}`;
  pen.fillStyle = colours.ink2;
  pen.fillText(tree.prompt, 0, lineY(0) - 4);
  const read = pathTo(tree, at);
  tree.nodes.forEach((node, index) => drawEdge(pen, tree, layout, node, read.has(index), colours));
  tree.nodes.forEach((node, index) => drawNode(pen, layout, node, { read: index === at, onPath: read.has(index) }, colours));
  drawTotals(pen, tree, layout, colours);
}

function pathTo(tree, at) {
  const path = new Set();
  for (let node = at ?? -1; node >= 0; node = tree.nodes[node].parent) path.add(node);
  return path;
}

function drawSteps(pen, layout, colours) {
  pen.font = `10px ${colours.mono}`;
  pen.fillStyle = colours.ink3;
  let free = -Infinity;
  layout.x.forEach((x, step) => {
    if (x < free) return;
    pen.fillText(String(step), x, 8);
    free = x + pen.measureText(String(step)).width + 10;
  });
}

function drawEdge(pen, tree, layout, { parent, step, row, current }, read, colours) {
  const from = parent < 0 ? { right: layout.root + 4, row: 0 } : { right: layout.x[step - 1] + layout.widths[step - 1], row: tree.nodes[parent].row };
  const [y0, y1] = [lineY(from.row) - 4, lineY(row) - 4];
  const to = layout.x[step] - 3;
  pen.strokeStyle = read ? colours.ink : current ? colours.accent : colours.rule;
  pen.lineWidth = read || current ? 1.5 : 1;
  pen.beginPath();
  if (from.row === row) {
    pen.moveTo(from.right + 3, y0);
    pen.lineTo(to, y1);
  } else {
    const turn = from.right + 3 + (to - from.right - 3) / 2;
    pen.moveTo(turn, y0);
    pen.lineTo(turn, y1);
    pen.lineTo(to, y1);
  }
  pen.stroke();
}

// The token, and under it a bar of the probability that the model gave it.
function drawNode(pen, layout, { label, step, row, current, logProb }, { read, onPath }, colours) {
  const [x, width, y] = [layout.x[step], layout.widths[step], lineY(row)];
  if (current) {
    pen.fillStyle = colours.accentSoft;
    pen.fillRect(x - 2, y - 14, width + 4, 20);
  }
  pen.font = `${current || onPath ? "500 " : ""}${TREE.size}px ${colours.mono}`;
  pen.fillStyle = current || onPath ? colours.ink : colours.ink2;
  pen.fillText(fittedLabel(pen, label, width), x, y - 4);
  pen.fillStyle = colours.hairline;
  pen.fillRect(x - 2, y + 8, width + 4, 3);
  pen.fillStyle = colours.measured;
  pen.fillRect(x - 2, y + 8, Math.max(1, (width + 4) * Math.exp(logProb)), 3);
  if (!read) return;
  pen.strokeStyle = colours.ink;
  pen.lineWidth = 2;
  pen.strokeRect(x - 4, y - 16, width + 8, 30);
}

function drawTotals(pen, tree, layout, colours) {
  tree.ends.forEach((end, index) => {
    const { step, row, total } = tree.nodes[end];
    const inner = tree.nodes.some((node) => node.parent === end);
    if (inner) return drawEnd(pen, layout.x[step] + layout.widths[step] + TREE.gap / 2, lineY(row) - 4, colours);
    const x = layout.x[step] + layout.widths[step] + TREE.gap;
    pen.font = `${index ? "" : "500 "}12px ${colours.sans}`;
    pen.fillStyle = index ? colours.ink2 : colours.ink;
    pen.fillText(`log p ${decimals(total, 2)}`, x, lineY(row) - 4);
    const after = pen.measureText(`log p ${decimals(total, 2)}`).width;
    pen.font = `12px ${colours.sans}`;
    pen.fillStyle = colours.ink3;
    pen.fillText(`${groupDigits(step + 1)} token${step ? "s" : ""}`, x + after + 8, lineY(row) - 4);
  });
}

// The run as it is ends inside a branch that goes on.
function drawEnd(pen, x, y, colours) {
  pen.beginPath();
  pen.arc(x, y, 3.5, 0, 2 * Math.PI);
  pen.fillStyle = colours.accent;
  pen.fill();
  pen.lineWidth = 1.5;
  pen.strokeStyle = colours.background;
  pen.stroke();
}
