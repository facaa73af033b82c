// A changed run beside the plain one: numbers over each other, and the next token's distribution in both.

export default function ({ data, parentElement }) {
  const { meta, arrays } = unpack(data);
  const [both] = arrays;
  const width = meta.rows.length + 1;
  const tiles = element("div", { class: "pairs", role: "list" }, meta.tiles.map((tile) => pairTile(tile, meta.name)));
  const rows = meta.rows.map((row, index) => besideRow(tokenText(row.parts), flatToken(row.parts), both.data[index], both.data[width + index], row.id));
  const rest = besideRow(element("span", {}, `${groupDigits(meta.others)} others`), "others", both.data[width - 1], both.data[2 * width - 1], null);
  const head = element("div", { class: "next head caption", role: "row" }, ["Next token", "plain run", meta.name].map((text) => element("span", { role: "columnheader" }, text)));
  // the figure's rows; the model's other tokens are together in the last
  const numbers = () => [
    ["next token id", "next token", "plain run", meta.name],
    ...Array.from({ length: width }, (_, index) => {
      const row = meta.rows[index];
      const masses = [both.data[index], both.data[width + index]].map((mass) => (Number.isFinite(mass) ? mass : notFinite(mass)));
      return [...(row ? [row.id, tokenCell(flatToken(row.parts))] : [null, "all others"]), ...masses];
    }),
  ];
  const table = element("div", { class: "next-tokens", role: "table", "aria-label": "likeliest next tokens in both runs" }, head, rows, meta.others > 0 ? rest : null);
  parentElement.querySelector(".gb").replaceChildren(element("div", { class: "beside" }, tiles, element("div", {}, table, figureSaves(`next-token-${fileName(meta.name)}`, null, numbers))));
}

function pairTile(tile, name) {
  const row = (mark, label, value) => [element("dt", {}, element("i", { class: `mark ${mark}`, "aria-hidden": "true" }, mark === "delta" ? "Δ" : null), label), element("dd", { class: "number" }, value)];
  return element(
    "div",
    { class: "pair", role: "listitem" },
    element("div", { class: "name" }, tile.name),
    element("div", { class: "headline number" }, tile.changed, tile.unit ? element("span", { class: "unit" }, tile.unit) : null),
    element("dl", {}, row("disc", "plain run", tile.plain), row("disc", name, tile.changed), row("delta", "difference", tile.difference)),
    tile.note ? element("p", { class: "note" }, tile.note) : null,
  );
}

function besideRow(label, title, plain, changed, id) {
  return element("div", { class: id === null ? "next rest" : "next", role: "row", "data-id": id }, element("span", { class: "name", role: "rowheader", title }, label), massCell(plain), massCell(changed));
}

function massCell(mass) {
  const bar = element("span", { class: "track" }, Number.isFinite(mass) ? element("i", { style: `width:${Math.max(0.5, 100 * mass)}%` }) : null);
  return element("span", { class: "mass", role: "cell" }, bar, element("span", { class: "number" }, decimals(mass, 4)));
}
