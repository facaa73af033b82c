// A table of numbers: names at the left, numbers at the right of their columns, one row perhaps marked. It can be copied, or saved.

function sheetCell(tag, text, index) {
  return element(tag, { class: index ? "number" : "first", scope: tag === "th" ? (index ? "col" : "row") : null }, text);
}

export default function ({ data, parentElement }) {
  const host = parentElement.querySelector(".gb");
  const { head, rows, exact, marked, file, mark } = unpack(data).meta;
  const state = mounted(parentElement, () => ({ timer: 0 }));
  const table = element(
    "table",
    {},
    element("thead", {}, element("tr", {}, head.map((text, index) => sheetCell("th", text, index)))),
    element(
      "tbody",
      {},
      rows.map((cells, row) => element("tr", { "aria-current": row === marked ? "true" : null }, cells.map((text, index) => sheetCell(index ? "td" : "th", text, index)))),
    ),
  );
  const copy = element("button", { type: "button", class: "save-button" }, "Copy as a table");
  copy.onclick = () => {
    const text = exact.map((cells) => cells.join("\t")).join("\n");
    const say = (words) => {
      copy.textContent = words;
      window.clearTimeout(state.timer);
      state.timer = window.setTimeout(() => (copy.textContent = "Copy as a table"), 1600);
    };
    navigator.clipboard.writeText(text).then(
      () => say("Copied"),
      () => say("The browser refused"),
    );
  };
  const save = element("button", { type: "button", class: "save-button", onclick: () => saveRows(file, exact) }, "CSV");
  const root = element("div", { class: "sheet" }, element("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": head[0] }, table), element("div", { class: "save-row" }, copy, save));
  root.dataset.mark = mark;
  host.replaceChildren(root);
  return () => {
    window.clearTimeout(state.timer);
    unmount(parentElement);
  };
}
