// The logit lens: a row for each layer, its likeliest tokens, and where the chosen token stands among all.

export default function ({ data, parentElement, setStateValue }) {
  const host = parentElement.querySelector(".gb");
  const { meta, arrays } = unpack(data);
  const state = mounted(parentElement, () => ({ stop: null }));
  state.stop?.();
  const [ids, probs, chosen, ranks] = arrays;
  const top = ids.shape[1];
  const rows = meta.layers.map((name, row) => {
    const cells = Array.from({ length: top }, (_, k) => {
      const token = ids.data[row * top + k];
      return lensCell(meta.vocabulary[token], probs.data[row * top + k], token === meta.token, k > 1);
    });
    return lensRow(name, cells, chosen.data[row], ranks.data[row]);
  });
  const table = element(
    "div",
    { class: "lens", role: "table", "aria-label": "likeliest tokens after each layer", style: `--top:${top}` },
    lensHead(meta, top),
    rows,
  );
  const cursor = meta.url ? stepCursor(host, meta.url, meta, (answer) => setStateValue("cursor", answer)) : null;
  state.stop = cursor?.stop;
  host.replaceChildren(...[cursor?.node, table].filter(Boolean));
  return () => {
    state.stop?.();
    unmount(parentElement);
  };
}

function lensHead(meta, top) {
  const names = ["layer", "likeliest", ...Array(top - 1).fill(""), null, "rank"];
  const token = element("span", { role: "columnheader", class: "number" }, "p of ", tokenText(meta.vocabulary[meta.token]));
  const cells = names.map((name, k) => (name === null ? token : element("span", { role: "columnheader", class: k > top ? "number" : k > 2 ? "far" : null }, name)));
  return element("div", { class: "lens-row lens-head", role: "row" }, cells);
}

function lensRow(name, cells, probability, rank) {
  const first = rank === 1;
  return element(
    "div",
    { class: first ? "lens-row first" : "lens-row", role: "row", "data-layer": name },
    element("span", { role: "rowheader", class: "layer" }, name),
    cells,
    element(
      "span",
      { role: "cell", class: "p" },
      element("span", { class: "track" }, element("i", { style: `width:${Math.max(0.5, 100 * probability)}%` })),
      element("span", { class: "number" }, decimals(probability, 4)),
    ),
    element("span", { role: "cell", class: "number rank" }, groupDigits(rank)),
  );
}

function lensCell(parts, probability, chosen, far) {
  return element(
    "span",
    { role: "cell", class: `cell${chosen ? " chosen" : ""}${far ? " far" : ""}`, title: `${flatToken(parts)}: probability ${decimals(probability, 4)}` },
    element("span", { class: "name" }, tokenText(parts)),
    element("span", { class: "number" }, probability >= 0.0095 ? probability.toFixed(2) : "< 0.01"),
    element("i", { class: "bar", style: `width:${100 * probability}%`, "aria-hidden": "true" }),
  );
}
