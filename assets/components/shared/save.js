// Quiet buttons that save a figure from the browser: canvases as a PNG, its numbers as a CSV.

// `name` of the file, without its ending, and `rows` (cells, the first row the head) may depend on what is shown: both are asked for
// when a button is pressed, as are the canvases (null where a figure has none) and the colours. `title` stands over the picture.
function figureSaves(name, canvases, rows, colours, { title = () => "", png = "PNG", csv = "CSV" } = {}) {
  const now = (given) => (typeof given === "function" ? given() : given);
  const button = (text, save) => element("button", { type: "button", class: "save-button", onclick: save }, text);
  return element(
    "div",
    { class: "save-row" },
    canvases ? button(png, () => saveCanvases(now(name), canvases(), now(colours), title())) : null,
    button(csv, () => saveRows(now(name), rows())),
  );
}

// Canvases one under the other; one that is hidden takes no room.
function saveCanvases(name, canvases, colours, title = "") {
  const ratio = pixelRatio();
  const margin = Math.round(16 * ratio);
  const drawn = canvases.filter((canvas) => canvas.clientWidth);
  const picture = element("canvas");
  let top = margin + (title ? Math.round(28 * ratio) : 0);
  picture.width = Math.max(...drawn.map((canvas) => canvas.width)) + 2 * margin;
  picture.height = drawn.reduce((sum, canvas) => sum + canvas.height + margin, top);
  const pen = picture.getContext("2d");
  pen.fillStyle = colours.background;
  pen.fillRect(0, 0, picture.width, picture.height);
  if (title) {
    pen.fillStyle = colours.ink;
    pen.font = `500 ${14 * ratio}px ${colours.sans}`;
    pen.fillText(title, margin, margin + 12 * ratio);
  }
  for (const canvas of drawn) {
    pen.drawImage(canvas, margin, top);
    top += canvas.height + margin;
  }
  picture.toBlob((blob) => saveBlob(blob, `${name}.png`));
}

function saveRows(name, rows) {
  saveBlob(new Blob([rows.map((row) => `${row.map(csvCell).join(",")}\n`).join("")], { type: "text/csv" }), `${name}.csv`);
}

// As figures/table.py: every digit; what is missing is an empty field; and a spreadsheet takes no text for a formula.
function csvCell(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "";
  if (typeof value === "number") return String(value);
  const text = String(value);
  return `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
}

// The text of a token as a cell: in quotation marks of its own, with line breaks written out.
const tokenCell = (label) => JSON.stringify(label);

function saveBlob(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
