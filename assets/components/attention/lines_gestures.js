// Pointer and keys on the lines, and what tests may ask of what was drawn.

function listenToLines(page) {
  const { lines } = page.nodes;
  const at = (event) => tokenAt(page.field, page.lines, event.offsetX, event.offsetY);

  function point(token) {
    if (token?.side === page.pointed?.side && token?.position === page.pointed?.position) return;
    page.pointed = token;
    window.cancelAnimationFrame(page.pointing);
    page.pointing = window.requestAnimationFrame(() => page.field && page.view.figure === "lines" && drawLinesFigure(page));
  }

  lines.onpointermove = (event) => event.pointerType === "mouse" && point(at(event));
  lines.onpointerleave = () => point(null);
  // A click holds a token; the same again, or one beside the tokens, lets it go.
  lines.onclick = (event) => {
    const token = at(event);
    page.pointed = null;
    const { view } = page;
    const held = token && token.side === view.only && token.position === view[token.side];
    change(page, token && !held ? hold(page.field, view, token) : { only: "" });
  };
  lines.onkeydown = (event) => {
    page.pointed = null;
    if (event.key === "Escape" && page.view.only) return change(page, { only: "" });
    if (!plainKey(event)) return;
    event.preventDefault();
    const [down, right] = ARROWS[event.key] ?? [0, 0];
    const side = right ? (right < 0 ? "query" : "key") : page.view.only || "query";
    const ends = { Home: 0, End: page.field.tokens - 1 };
    const wanted = ends[event.key] ?? page.view[side] + (page.view.only ? down : 0);
    change(page, hold(page.field, page.view, { side, position: Math.max(0, Math.min(page.field.tokens - 1, wanted)) }));
  };
}

// The view that holds a token: of a key, with the nearest query that may read it.
function hold(field, { layer, query }, { side, position }) {
  if (side === "query") return { only: side, query: position };
  for (let distance = 0; distance < field.tokens; distance++)
    for (const near of [query + distance, query - distance])
      if (near >= 0 && near < field.tokens && field.allowed(layer, near, position)) return { only: side, query: near, key: position };
  return { only: "" };
}

function exposeLines({ nodes: { lines }, view, lines: layout }, heads, { of, lines: drawn, smallest }, token, notes) {
  Object.assign(lines.dataset, { drawn: drawn.length, of, smallest: smallest ?? "", heads: heads.map(pinName).join(), side: token?.side ?? "", position: token?.position ?? "" });
  const largest = token ? drawn.toSorted((a, b) => b.value - a.value).slice(0, 3) : [];
  const read = largest.map(({ index, query, key, value }) => `layer ${heads[index].layer}, head ${heads[index].head}: ${query} reads ${key}, ${decimals(value, 3)}`);
  const many = heads.length === 1 ? "one head" : `${heads.length} heads`;
  lines.setAttribute("aria-label", `Lines of ${many}, ${view.only || "no token"} held. ${[notes[0], ...read].join(". ")}. Up and down move, left and right change the side, Escape shows all.`);
  lines.drawn = () => drawn.map(({ index, query, key, value }) => [heads[index].layer, heads[index].head, query, key, value]);
  lines.placeOf = (side, position) => ({ x: side === "query" ? layout.left - 8 : layout.right + 8, y: layout.y(position) });
  lines.colourOn = (query, key, share) => {
    const x = layout.left + 4 + share * (layout.right - layout.left - 8);
    const y = layout.y(query) + share * (layout.y(key) - layout.y(query));
    return [...lines.getContext("2d").getImageData(Math.floor(x * pixelRatio()), Math.floor(y * pixelRatio()), 1, 1).data];
  };
}
