// A table of numbers: names at the left, numbers at the right of their columns, one row perhaps marked. It can be copied, or saved.
// It follows the page's sliders while a thumb moves.

function sheetCell(tag, text, index) {
  return element(tag, { class: index ? "number" : "first", scope: tag === "th" ? (index ? "col" : "row") : null }, text);
}

function sheetTable({ head, rows, marked }) {
  const body = rows.map((cells, row) =>
    element("tr", { "aria-current": row === marked ? "true" : null }, cells.map((text, index) => sheetCell(index ? "td" : "th", text, index))),
  );
  return element("table", {}, element("thead", {}, element("tr", {}, head.map((text, index) => sheetCell("th", text, index)))), element("tbody", {}, body));
}

// As figures/sheet.py: what is not told apart is copied as it is shown, its digits not grouped.
function sheetCopied({ exact_head, exact, rows }) {
  return [exact_head, ...exact.map((cells, row) => cells.map((cell, index) => cell ?? rows[row][index].replaceAll("\u2006", "")))];
}

function buildSheet(host) {
  const sheet = { meta: null, timer: 0, stop: () => {} };
  sheet.scroller = element("div", { class: "scroller", tabindex: 0, role: "region" }, element("table"));
  sheet.copy = element("button", { type: "button", class: "save-button" }, "Copy as a table");
  sheet.copy.onclick = () => {
    const text = sheetCopied(sheet.meta)
      .map((cells) => cells.join("\t"))
      .join("\n");
    const say = (words) => {
      sheet.copy.textContent = words;
      window.clearTimeout(sheet.timer);
      sheet.timer = window.setTimeout(() => (sheet.copy.textContent = "Copy as a table"), 1600);
    };
    navigator.clipboard.writeText(text).then(
      () => say("Copied"),
      () => say("The browser refused"),
    );
  };
  sheet.save = element("button", { type: "button", class: "save-button", onclick: () => saveRows(sheet.meta.file, sheetCopied(sheet.meta)) }, "CSV");
  sheet.root = element("div", { class: "sheet" }, sheet.scroller, element("div", { class: "save-row" }, sheet.copy, sheet.save));
  host.replaceChildren(sheet.root);
  return sheet;
}

export default function ({ data, parentElement }) {
  const sheet = mounted(parentElement, () => buildSheet(parentElement.querySelector(".gb")));
  sheet.stop();
  const payload = unpack(data);
  const draw = () => {
    const now = atStops(payload);
    if (!now) return;
    sheet.meta = now.meta;
    repaint(sheet.scroller.firstChild, sheetTable(now.meta));
    sheet.scroller.setAttribute("aria-label", now.meta.label);
    sheet.root.dataset.mark = now.meta.mark;
    // At another stop than Python's last answer only what is shown is known; what is copied comes with the next.
    sheet.copy.disabled = sheet.save.disabled = now.meta.exact === null;
  };
  draw();
  sheet.stop = onStops(payload, draw);
  return () => {
    sheet.stop();
    window.clearTimeout(sheet.timer);
    unmount(parentElement);
  };
}
