// A table of words and numbers that scrolls inside itself, and a quiet button that copies it as Markdown.

const GRID_SAID_MS = 2000;

export default function ({ data, parentElement }) {
  const state = mounted(parentElement, () => ({ shown: null, stop: () => {} }));
  state.stop();
  const payload = unpack(data);
  state.shown = atStops(payload) ?? state.shown ?? payload;
  const { meta } = state.shown;
  const said = element("span", { class: "note", role: "status" });
  const copy = element("button", { type: "button", class: "save-button" }, "Copy as a table");
  copy.onclick = async () => {
    said.textContent = (await gridCopied(markdownTable(state.shown.meta))) ? "Copied" : "The browser does not allow it here";
    window.setTimeout(() => said.replaceChildren(), GRID_SAID_MS);
  };
  const table = element("table", {}, ...gridParts(meta));
  const scroller = element("div", { class: "grid-scroll", tabindex: 0, role: "region", "aria-label": meta.label }, table);
  const foot = meta.copy ? element("div", { class: "save-row" }, copy, said) : null;
  parentElement.querySelector(".gb").replaceChildren(element("div", { class: "grid" }, scroller, ...(foot ? [foot] : [])));
  state.stop = onStops(payload, () => {
    const now = atStops(payload);
    if (!now) return;
    state.shown = now;
    table.replaceChildren(...gridParts(now.meta));
  });
  return () => {
    state.stop();
    unmount(parentElement);
  };
}

// Caption, head and body.
function gridParts(meta) {
  const kind = (column) => (column < meta.words ? "word" : "number");
  const mark = { c: "ring", m: "disc" };
  const head = meta.columns.map((text, column) =>
    element("th", { scope: "col", class: kind(column) }, mark[meta.marks[column]] ? element("i", { class: `mark ${mark[meta.marks[column]]}`, "aria-hidden": "true" }) : null, text),
  );
  const cell = (text, column) => element(column ? "td" : "th", { scope: column ? null : "row", class: kind(column) }, text);
  const rows = meta.rows.map((row, index) => element("tr", { class: meta.bold.includes(index) ? "chosen" : null }, row.map(cell)));
  return [element("caption", { class: "unseen" }, meta.label), element("thead", {}, element("tr", {}, head)), element("tbody", {}, rows)];
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
