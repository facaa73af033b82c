// A table of words and numbers that scrolls inside itself, and a quiet button that copies it as Markdown.

const GRID_SAID_MS = 2000;

export default function ({ data, parentElement }) {
  const { meta } = unpack(data);
  const words = (column) => column < meta.words;
  const cell = (row, text, column) => {
    const tag = column === 0 && row >= 0 ? "th" : "td";
    return element(tag, { scope: tag === "th" ? "row" : null, class: words(column) ? "word" : "number" }, text);
  };
  const mark = { c: "ring", m: "disc" };
  const head = meta.columns.map((text, column) =>
    element("th", { scope: "col", class: words(column) ? "word" : "number" }, mark[meta.marks[column]] ? element("i", { class: `mark ${mark[meta.marks[column]]}`, "aria-hidden": "true" }) : null, text),
  );
  const rows = meta.rows.map((row, index) => element("tr", { class: meta.bold.includes(index) ? "chosen" : null }, row.map((text, column) => cell(index, text, column))));
  const table = element("table", {}, element("caption", { class: "unseen" }, meta.label), element("thead", {}, element("tr", {}, head)), element("tbody", {}, rows));
  const said = element("span", { class: "note", role: "status" });
  const copy = element("button", { type: "button", class: "save-button" }, "Copy as a table");
  copy.onclick = async () => {
    said.textContent = (await gridCopied(markdownTable(meta))) ? "Copied" : "The browser does not allow it here";
    window.setTimeout(() => said.replaceChildren(), GRID_SAID_MS);
  };
  const scroller = element("div", { class: "grid-scroll", tabindex: 0, role: "region", "aria-label": meta.label }, table);
  const foot = meta.copy ? element("div", { class: "save-row" }, copy, said) : null;
  parentElement.querySelector(".gb").replaceChildren(element("div", { class: "grid" }, scroller, ...(foot ? [foot] : [])));
}

function markdownTable({ columns, rows, words }) {
  const line = (cells) => `| ${cells.map((text) => text.replaceAll("|", "\\|").replaceAll("\n", " ")).join(" | ")} |`;
  return [line(columns), line(columns.map((_, column) => (column < words ? ":--" : "--:"))), ...rows.map(line)].join("\n");
}

async function gridCopied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
