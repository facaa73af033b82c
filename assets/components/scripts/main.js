// Characters per token of one sentence in several scripts; the pressed row shows how its sentence was cut.

export default function ({ data, parentElement }) {
  const host = parentElement.querySelector(".gb");
  const { rows } = unpack(data).meta;
  const state = mounted(parentElement, () => ({ chosen: rows[0].name }));
  const largest = Math.max(1, ...rows.map((row) => row.ratio));
  const list = element("div", { class: "scripts", role: "group", "aria-label": "sentences" });
  const shown = element("div", { class: "cut", "aria-live": "polite" });
  const buttons = rows.map((row) => scriptRow(row, largest, () => choose(row.name)));
  list.append(scriptHead(), ...buttons);
  list.onkeydown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const from = rows.findIndex((row) => row.name === state.chosen);
    const to = Math.max(0, Math.min(rows.length - 1, from + step));
    choose(rows[to].name);
    buttons[to].focus();
  };
  host.replaceChildren(element("div", { class: "two" }, list, shown));

  function choose(name) {
    state.chosen = name;
    const at = Math.max(0, rows.findIndex((row) => row.name === name));
    buttons.forEach((button, index) => {
      button.setAttribute("aria-pressed", String(index === at));
      button.tabIndex = index === at ? 0 : -1;
    });
    shown.replaceChildren(...cutSentence(rows[at]));
  }

  choose(state.chosen);
  return () => unmount(parentElement);
}

function scriptHead() {
  return element("div", { class: "script head", "aria-hidden": "true" }, element("span", {}, "text"), element("span", {}, "characters per token"), element("span", {}), element("span", { class: "count" }, "tokens"));
}

function scriptRow(row, largest, choose) {
  return element(
    "button",
    { class: "script", type: "button", onclick: choose, "data-name": row.name, "aria-label": `${row.name}: ${decimals(row.ratio, 2)} characters per token` },
    element("span", { class: "script-name" }, row.name),
    element("span", { class: "track" }, element("i", { style: `width:${(100 * row.ratio) / largest}%` })),
    element("span", { class: "number" }, decimals(row.ratio, 2)),
    element("span", { class: "number count" }, String(row.tokens.length)),
  );
}

function cutSentence(row) {
  const language = row.lang === "und" ? {} : { lang: row.lang };
  const counts = `${row.characters} characters, ${row.bytes} bytes, ${row.tokens.length} tokens`;
  return [
    element("div", { class: "caption" }, row.name),
    element("p", { class: "sentence", dir: "auto", ...language }, row.text),
    element("div", { class: "note" }, counts),
    element("div", { class: "cut-tokens" }, row.tokens.map((parts) => element("span", { class: "cut-token token" }, tokenSpans(parts)))),
  ];
}
