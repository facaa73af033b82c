// Number tiles. A hollow ring is calculated, a solid disc is measured, a dashed ring is neither; the difference is in ink.

const TILE_MARK = { missing: "dashed", impossible: "dashed" };

function tileRow(mark, label, value) {
  return [
    element(
      "dt",
      {},
      element("i", { class: `mark ${mark}`, "aria-hidden": "true" }, mark === "delta" ? "Δ" : null),
      label,
    ),
    element("dd", { class: "number" }, value),
  ];
}

function tileBelow(tile, run) {
  const lines = [];
  if (tile.reason) lines.push(element("p", { class: "note reason" }, tile.reason));
  if (tile.note) lines.push(element("p", { class: "note" }, tile.note));
  if (tile.run)
    lines.push(element("button", { type: "button", class: "run", onclick: () => run(tile.name) }, tile.run));
  return lines;
}

function tileElement(tile, run) {
  return element(
    "div",
    { class: "tile", role: "listitem", "data-state": tile.state },
    element("div", { class: "name" }, tile.name),
    element(
      "div",
      { class: "headline number" },
      tile.value,
      tile.unit ? element("span", { class: "unit" }, tile.unit) : null,
    ),
    element(
      "dl",
      {},
      tileRow("ring", "calculated", tile.calculated),
      tileRow(TILE_MARK[tile.state] ?? "disc", tile.how, tile.measured),
      tileRow("delta", "difference", tile.difference),
    ),
    tileBelow(tile, run),
  );
}

export default function ({ data, parentElement, setTriggerValue }) {
  const { meta } = unpack(data);
  const run = (name) => setTriggerValue("run", name);
  const tiles = meta.tiles.map((tile) => tileElement(tile, run));
  parentElement.querySelector(".gb").replaceChildren(element("div", { class: "tiles", role: "list" }, tiles));
}
