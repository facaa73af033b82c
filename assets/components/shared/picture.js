// A drawing of SVG elements as a canvas, so that it is saved in the page's own faces, which an image of SVG would not have.

const PICTURED = "line, rect, circle, path, text";

// Lines, rectangles, circles, paths and text without transforms, as they stand on the page now; a pattern becomes dots.
function svgPicture(svg) {
  const canvas = element("canvas");
  const pen = fitCanvas(canvas, svg.clientWidth, svg.clientHeight);
  for (const node of svg.querySelectorAll(PICTURED)) {
    const style = getComputedStyle(node);
    if (style.visibility === "hidden" || node.closest("defs")) continue;
    pen.globalAlpha = Number(style.opacity);
    if (node.tagName === "text") pictureText(pen, node, style);
    else pictureShape(pen, svgPathOf(node), style);
  }
  return canvas;
}

function pictureText(pen, node, style) {
  pen.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  pen.textAlign = { middle: "center", end: "right" }[style.textAnchor] ?? "left";
  pen.fillStyle = style.fill;
  pen.fillText(node.textContent, Number(node.getAttribute("x")), Number(node.getAttribute("y")));
}

function pictureShape(pen, path, style) {
  if (style.fill !== "none") {
    pen.fillStyle = style.fill.startsWith("url") ? statePattern(pen, "dots", style.color) : style.fill;
    pen.fill(path);
  }
  if (style.stroke === "none") return;
  pen.strokeStyle = style.stroke;
  pen.lineWidth = Number.parseFloat(style.strokeWidth);
  pen.setLineDash(style.strokeDasharray === "none" ? [] : style.strokeDasharray.split(/[ ,]+/).map(Number.parseFloat));
  pen.stroke(path);
}

function svgPathOf(node) {
  const at = (...names) => names.map((name) => Number(node.getAttribute(name)));
  if (node.tagName === "path") return new Path2D(node.getAttribute("d"));
  const path = new Path2D();
  if (node.tagName === "rect") path.roundRect(...at("x", "y", "width", "height", "rx"));
  else if (node.tagName === "circle") path.arc(...at("cx", "cy", "r"), 0, 2 * Math.PI);
  else {
    path.moveTo(...at("x1", "y1"));
    path.lineTo(...at("x2", "y2"));
  }
  return path;
}
