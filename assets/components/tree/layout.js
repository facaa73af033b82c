// Where the nodes of the tree are: a column for each step, a line for each branch.

const TREE = { top: 26, line: 46, gap: 16, least: 16, most: 88, total: 172, under: 8, size: 12.5 };

// {x: left edge of each step's column, widths, count of lines, width, height}
function treeLayout(tree, colours) {
  const pen = new OffscreenCanvas(1, 1).getContext("2d");
  pen.font = `500 ${TREE.size}px ${colours.mono}`;
  const widths = [];
  tree.nodes.forEach(({ label, step }) => {
    const width = Math.max(TREE.least, Math.min(TREE.most, Math.ceil(pen.measureText(label).width) + 2));
    widths[step] = Math.max(widths[step] ?? 0, width);
  });
  pen.font = `11px ${colours.sans}`;
  const root = Math.ceil(pen.measureText(tree.prompt).width);
  const x = [];
  let left = root + TREE.gap + 4;
  for (const width of widths) {
    x.push(left);
    left += width + TREE.gap;
  }
  const lines = 1 + Math.max(0, ...tree.nodes.map((node) => node.row));
  const total = Math.max(...tree.ends.map((node) => x[tree.nodes[node].step] + widths[tree.nodes[node].step]));
  return { x, widths, root, lines, width: total + TREE.gap + TREE.total, height: TREE.top + lines * TREE.line + TREE.under };
}

const lineY = (row) => TREE.top + row * TREE.line + 17;

// The node under a point: anywhere in its column and line.
function nodeAt(tree, layout, px, py) {
  const row = Math.floor((py - TREE.top) / TREE.line);
  const found = tree.nodes.findIndex(
    ({ step, row: own }) => own === row && px >= layout.x[step] - TREE.gap / 2 && px < layout.x[step] + layout.widths[step] + TREE.gap / 2,
  );
  return found < 0 ? null : found;
}

// Left and right along the path, up and down to the nearest step of the next line.
function nodeBeside(tree, from, key) {
  const { parent, row, step } = tree.nodes[from];
  if (key === "ArrowLeft") return parent >= 0 ? parent : from;
  if (key === "ArrowRight") {
    const below = tree.nodes.findIndex((node) => node.parent === from);
    return below >= 0 ? below : from;
  }
  if (key === "Home") return tree.nodes.findIndex((node) => node.row === row);
  if (key === "End") return tree.nodes.findLastIndex((node) => node.row === row);
  const wanted = row + (key === "ArrowDown" ? 1 : -1);
  let nearest = from;
  tree.nodes.forEach((node, index) => {
    if (node.row !== wanted) return;
    if (nearest === from || Math.abs(node.step - step) < Math.abs(tree.nodes[nearest].step - step)) nearest = index;
  });
  return nearest;
}
