// The head that is picked: its row as bars over the tokens, the heaviest first, and the way to its map.

const LISTED = 12;

function headPanel(reads, layout, index) {
  const { layer, head } = headOf(reads, index);
  const cells = Array.from({ length: reads.columns }, (_, column) => ({ column, weight: reads.weights[index * reads.columns + column] }));
  const read = cells.filter(({ weight }) => Number.isFinite(weight));
  const listed = [...read].sort((a, b) => b.weight - a.weight || a.column - b.column).slice(0, LISTED);
  const rest = read.length - listed.length;
  const whole = { ...layout, factor: reads.pooled };
  const rows = listed.map(({ column, weight }) => {
    const [from, to] = cellPositions(reads, whole, column);
    return element(
      "div",
      { class: "bar-row", role: "row", "data-position": from },
      element("span", { class: "number place", role: "cell" }, to > from ? `${from}–${to}` : String(from)),
      element("span", { class: "name", role: "cell" }, to > from ? "" : tokenText(reads.pieces[from])),
      element("span", { class: "track", "aria-hidden": "true" }, element("i", { style: `width:${Math.max(0.5, 100 * weight)}%` })),
      element("span", { class: "number", role: "cell" }, decimals(weight, 4)),
    );
  });
  const sum = (list) => list.reduce((total, { weight }) => total + weight, 0);
  const others = reads.pooled > 1 ? null : element("div", { class: "note" }, rest ? `The other ${groupDigits(rest)} together: ${decimals(sum(read) - sum(listed), 4)}.` : null);
  const scores = reads.measures.map((name, k) => [name, reads.scores[index * reads.measures.length + k]]);
  const said = { entropy: (x) => `entropy ${decimals(x, 2)} nats`, distance: (x) => `mean distance ${decimals(x, 1)}`, first: (x) => `position 0: ${decimals(x, 3)}` };
  return [
    element("div", { class: "panel-head" }, element("b", {}, `Layer ${layer}, head ${head}`), element("a", { href: mapAddress(reads, layer, head), class: "to-map" }, "Its map on the Attention page")),
    element("div", { class: "note scores" }, scores.map(([name, value]) => said[name](value)).join(" · ")),
    element("div", { class: "bars", role: "table", "aria-label": `what layer ${layer}, head ${head} reads` }, rows),
    others,
    reads.text === null ? element("div", { class: "note" }, "The map there is of the prompt alone: the text so far is no prompt that gives these tokens.") : null,
  ];
}

// The Attention page with this head and, where the text so far is a prompt that gives the same tokens, this query's row.
function mapAddress(reads, layer, head) {
  const here = new URL(window.location.href);
  const there = new URLSearchParams();
  for (const [name, value] of here.searchParams) if (!name.startsWith("decode_") && name !== reads.url) there.set(name, value);
  there.set("layer", layer);
  there.set("head", head);
  there.delete("query");
  there.delete("key");
  if (reads.text !== null) {
    there.set("prompt", reads.text);
    there.set("query", reads.positions - 1);
  }
  return `${here.pathname.replace(/[^/]*$/, "attention")}?${there}`;
}

function cellInWords(reads, layout, index, column) {
  const { layer, head } = headOf(reads, index);
  const [from, to] = cellPositions(reads, layout, column);
  const weight = cellWeight(reads, layout, index, column);
  const where = to > from ? [`positions ${from} to ${to}, at most `] : [`position ${from} `, tokenText(reads.pieces[from]), ": "];
  return [`layer ${layer}, head ${head} reads `, ...where, element("b", { class: "number" }, Number.isNaN(weight) ? "out of the window" : decimals(weight, 4))];
}
