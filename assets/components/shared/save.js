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

// One under the other: canvases, {canvas, caption}, or lists of these, which stand side by side. A hidden canvas of the page takes no
// room; one that was made for the picture (svgPicture) is drawn.
function saveCanvases(name, canvases, colours, title = "") {
  const ratio = pixelRatio();
  const [margin, line] = [Math.round(16 * ratio), Math.round(28 * ratio)];
  const rows = canvases
    .map((row) => [row].flat().map((item) => (item.canvas ? item : { canvas: item, caption: "" })))
    .map((row) => row.filter(({ canvas }) => canvas.clientWidth || !canvas.isConnected))
    .filter((row) => row.length)
    .map((row) => ({ row, head: row.some(({ caption }) => caption) ? line : 0 }));
  const gapOf = ({ head }) => (head ? margin : 0); // an axis lies against its field
  const widthOf = (each) => each.row.reduce((sum, { canvas }) => sum + canvas.width + gapOf(each), -gapOf(each));
  const heightOf = ({ row, head }) => head + Math.max(...row.map(({ canvas }) => canvas.height));
  const picture = element("canvas");
  picture.width = Math.max(...rows.map(widthOf)) + 2 * margin;
  picture.height = rows.reduce((sum, each) => sum + heightOf(each) + margin, margin + (title ? line : 0));
  const pen = picture.getContext("2d");
  const write = (text, x, y) => text && pen.fillText(text, x, y + 12 * ratio);
  pen.fillStyle = colours.background;
  pen.fillRect(0, 0, picture.width, picture.height);
  pen.fillStyle = colours.ink;
  pen.font = `500 ${14 * ratio}px ${colours.sans}`;
  write(title, margin, margin);
  let top = margin + (title ? line : 0);
  for (const each of rows) {
    let left = margin;
    for (const { canvas, caption } of each.row) {
      write(caption, left, top);
      pen.drawImage(canvas, left, top + each.head);
      left += canvas.width + gapOf(each);
    }
    top += heightOf(each) + margin;
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

// "Previous token" as part of a file's name: previous-token.
const fileName = (text) => text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");

function saveBlob(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
