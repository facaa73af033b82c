// The nodes of the diagram: their size from their text, their drawing, their links. All lengths are CSS pixels.

const NODE = { height: 42, padding: 10, least: 48, line: 16, plus: 8 };
const NODE_FONT = { name: "500 12.5px", detail: "11.5px", line: "11.5px" };

// Measures text in the theme's own face.
function textMeasure(host) {
  const context = new OffscreenCanvas(1, 1).getContext("2d");
  const face = getComputedStyle(host).getPropertyValue("--st-font") || "sans-serif";
  return (text, font) => {
    context.font = `${font} ${face}`;
    return Math.ceil(context.measureText(text).width);
  };
}

// What stands under a node: its parameters (calculated), the shapes of this prompt, and how positions come in here, which has a page.
const linesUnder = (node) => [
  ...(node.parameters == null ? [] : [{ text: node.parameters, fill: "var(--accent)" }]),
  ...node.lines.map((text) => ({ text })),
  ...(node.positions ? [{ text: node.positions.text, link: node.positions }] : []),
];

function svgUnder({ text, fill, link }, x, y, links, anchor = "middle") {
  if (!link) return svgQuiet(x, y, text, { "text-anchor": anchor, ...(fill ? { style: `fill:${fill}` } : {}) });
  return links.wrap(link, [svgQuiet(x, y, text, { "text-anchor": anchor, class: "node-name line", style: null })]);
}

// A node with no detail and no parameters is no computation: it is written without a box.
const isBare = (node) => !node.detail && node.parameters == null;

function nodeWidth(node, measure) {
  const inside = Math.max(measure(node.name, NODE_FONT.name), measure(node.detail, NODE_FONT.detail));
  return isBare(node) ? inside : Math.max(NODE.least, inside + 2 * NODE.padding);
}

// The width a node needs in a row: its box or the widest line under it.
function columnWidth(node, measure) {
  return Math.max(nodeWidth(node, measure), ...linesUnder(node).map(({ text }) => measure(text, NODE_FONT.line)));
}

const svgLabel = (x, y, text, properties = {}) => svgElement("text", { x, y, "font-size": 12.5, ...properties }, text);
const svgQuiet = (x, y, text, properties = {}) =>
  svgLabel(x, y, text, { "font-size": 11.5, style: "fill:var(--ink2)", ...properties });
const svgLine = (x1, y1, x2, y2, properties = {}) =>
  svgElement("line", { x1, y1, x2, y2, stroke: "var(--ink)", "stroke-width": 1, ...properties });
const svgPath = (d, properties = {}) => svgElement("path", { d, fill: "none", stroke: "var(--ink)", ...properties });

function svgPlus(x, y) {
  const cross = svgPath(`M${x - 4.5} ${y}h9M${x} ${y - 4.5}v9`);
  return [svgElement("circle", { cx: x, cy: y, r: NODE.plus, fill: "var(--background)", stroke: "var(--ink)" }), cross];
}

// A box with its name and detail, centred on (x, y); `left` gives a box whose text starts at its left edge.
function nodeBox(node, x, y, width, links, left = false) {
  const at = left ? x - width / 2 + NODE.padding : x;
  const anchor = left ? "start" : "middle";
  const two = node.detail && !left;
  const box = isBare(node)
    ? null
    : svgElement("rect", {
        x: x - width / 2,
        y: y - NODE.height / 2,
        width,
        height: NODE.height,
        rx: 2,
        fill: "var(--background)",
        stroke: "var(--ink)",
      });
  const name = svgLabel(at, y + (two ? -3 : 4), node.name, {
    "text-anchor": anchor,
    "font-weight": 500,
    class: "node-name",
  });
  const detail = two ? svgQuiet(at, y + 13, node.detail, { "text-anchor": anchor }) : null;
  return links.wrap(node, [box, name, detail]);
}

// Links to the pages of the nodes. The address is taken anew at each use, since view state is written into it.
function pageLinks(open) {
  const address = (page) => {
    const url = new URL(page || ".", window.location.href);
    url.search = window.location.search;
    return url.href;
  };
  const wrap = (node, children) => {
    if (node.page == null) return svgElement("g", { "data-node": node.id }, children);
    const renew = (event) => event.currentTarget.setAttribute("href", address(node.page));
    const onclick = (event) => {
      renew(event);
      if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || event.button) return;
      event.preventDefault();
      open(node.page, address(node.page));
    };
    const properties = {
      class: "node-link",
      "data-node": node.id,
      href: address(node.page),
      onpointerdown: renew,
      onfocus: renew,
      onclick,
    };
    return svgElement("a", properties, children);
  };
  return { wrap };
}
