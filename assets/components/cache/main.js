// The KV cache as it fills: layers down, positions across, one column a decode step. All steps so far are in the payload.

const MOST_BUTTONS = 12;
const CELL_HINT = "Point at a cell to read it, or walk with the arrow keys.";

export default function ({ data, parentElement }) {
  const host = parentElement.querySelector(".gb");
  const cache = readCache(data);
  const last = cache.fills.length - 1;
  const state = mounted(parentElement, () => ({ step: stepFromUrl(cache.url), head: 0, cell: null, last, stop: null }));
  state.stop?.();
  // A step made, taken back or made anew is looked at; otherwise, and while a link's steps are made, the one chosen stays.
  if (!cache.keep && (state.step >= last || (state.last !== last && !state.keep))) state.step = null;
  state.keep = cache.keep;
  state.last = last;
  state.head = Math.min(state.head, Math.max(0, cache.heads - 1));
  state.cell = null;

  const colours = themeColours(host);
  const ramp = themeRamp(host);
  const step = () => (state.step === null ? last : Math.min(state.step, last));
  const shown = () => cache.fills[step()] ?? null;
  const saves = figureSaves(
    () => `kv-cache-step-${Math.max(0, step())}`,
    () => [[parts.axis, parts.field], parts.scale],
    () => cacheRows(cache, shown()),
    colours,
    { title: () => `KV cache after step ${Math.max(0, step())}: length of the stored keys, KV head ${state.head}` },
  );
  const parts = cacheElements(host, last, saves);
  let layout = null;

  function setStep(value, tell = true) {
    state.step = value >= last ? null : Math.max(0, value);
    if (tell && cache.url) viewToUrl({ [cache.url]: state.step });
    draw();
  }

  function setHead(head) {
    state.head = head;
    drawHeads();
    draw();
  }

  function drawHeads() {
    const name = (head) => `KV ${head}`;
    if (cache.heads < 2) return;
    if (cache.heads <= MOST_BUTTONS) {
      parts.heads.replaceChildren(
        buttonRow(
          "KV head",
          [...Array(cache.heads).keys()].map((head) => [head, name(head)]),
          state.head,
          setHead,
        ),
      );
      return;
    }
    const range =
      parts.heads.querySelector("input") ??
      element("input", { type: "range", min: 0, max: cache.heads - 1, "aria-label": "KV head" });
    range.value = state.head;
    range.setAttribute("aria-valuetext", name(state.head));
    range.oninput = () => setHead(Number(range.value));
    const caption = element("span", { class: "caption" }, name(state.head));
    if (range.isConnected) range.previousSibling.replaceWith(caption);
    else parts.heads.replaceChildren(element("label", { class: "head-range" }, caption, range));
  }

  function draw() {
    const width = host.clientWidth;
    if (!width) return;
    layout = cacheLayout(cache, width, longestLabel(cache, colours));
    const fill = shown();
    const view = { fill, step: step(), head: state.head, cell: state.cell };
    drawCacheAxis(parts.axis, cache, layout, colours);
    const broken = drawCacheField(parts.field, cache, layout, view, colours, ramp);
    const value = state.cell && fill ? readCell(fill).value : NaN;
    drawCacheScale(parts.scale, cache, value, colours, ramp);
    parts.facts.replaceChildren(...cacheFacts(cache, view));
    parts.reading.replaceChildren(...(state.cell && fill ? readCell(fill).words : [fill ? CELL_HINT : ""]));
    parts.legend.hidden = !fill;
    parts.notes.replaceChildren(
      ...cacheNotes(cache, layout, broken).map((note) => element("p", { class: "note" }, note)),
    );
    parts.scaleName.textContent = `length of the stored key${cache.heads > 1 ? `, KV head ${state.head}` : ""}`;
    parts.range.value = step();
    parts.stepName.textContent = last < 0 ? "nothing has run" : step() ? `step ${step()} of ${last}` : "after prefill";
    parts.range.setAttribute("aria-valuetext", parts.stepName.textContent);
    parts.field.setAttribute(
      "aria-label",
      `KV cache, ${cache.layers} layers by ${fill ? fill[0] : 0} positions; arrow keys read the cells`,
    );
    if (layout.scrolls && fill && view.step)
      showColumn(parts.scroller, Math.floor((fill[0] - 1) / layout.factor) * layout.column);
  }

  function readCell([length]) {
    const { layer, column } = state.cell;
    const kind = cellState(cache, layout, layer, column, length);
    const value = kind === "stored" ? cachedLength(cache, layout, layer, state.head, column, length) : NaN;
    const first = column * layout.factor;
    const end = Math.min(first + layout.factor, length) - 1;
    const place = end > first ? `positions ${first} to ${end}` : `position ${first}`;
    const token = end > first ? null : tokenText(cache.pieces[first] ?? []);
    const what = { empty: "not computed yet", left: "has left the window", stored: decimals(value, 4) }[kind];
    const words = [
      `layer ${layer}, ${place} `,
      kind === "empty" ? null : token,
      ": ",
      element("b", { class: "number" }, what),
    ];
    return { value, words: words.filter((word) => word !== null) };
  }

  function setCell(cell) {
    if (cell?.layer === state.cell?.layer && cell?.column === state.cell?.column) return;
    state.cell = cell;
    draw();
  }

  parts.range.oninput = () => setStep(Number(parts.range.value));
  listenToCells(
    parts.field,
    () => layout,
    cache,
    () => state.cell,
    setCell,
  );
  drawHeads();
  draw();
  whenFontsLoad(draw);
  const stops = [onWidth(host, draw)];
  if (cache.url) stops.push(onView(cache.url, (value) => value !== state.step && setStep(value ?? last, false)));
  state.stop = () => stops.forEach((stop) => stop());
  return () => {
    state.stop();
    unmount(parentElement);
  };
}

function readCache(data) {
  const { meta, arrays } = unpack(data);
  return { ...meta, lengths: arrays[0].data, labels: meta.pieces.map(flatToken) };
}

function stepFromUrl(name) {
  const step = name ? Number.parseInt(viewFromUrl([name])[name], 10) : NaN;
  return Number.isInteger(step) && step >= 0 ? step : null;
}

function cacheElements(host, last, saves) {
  const range = element("input", {
    type: "range",
    min: 0,
    max: Math.max(0, last),
    step: 1,
    "aria-label": "decode step",
  });
  range.disabled = last < 1;
  const stepName = element("span", { class: "step-name number" });
  const heads = element("div", { class: "heads" });
  const facts = element("div", { class: "facts" });
  const axis = element("canvas", { class: "axis", "aria-hidden": "true" });
  const field = element("canvas", { class: "field", role: "img", tabindex: 0 });
  const scroller = element("div", { class: "scroller" }, field);
  const scale = element("canvas", { "aria-hidden": "true" });
  const scaleName = element("span", { class: "note" });
  const reading = element("div", { class: "note reading", "aria-live": "polite" });
  const legend = element("div", { class: "scale" }, scale, scaleName);
  const notes = element("div", { class: "notes" });
  const label = element(
    "label",
    { class: "steps" },
    element("span", { class: "caption" }, "Decode step"),
    stepName,
    range,
  );
  host.replaceChildren(
    element("div", { class: "controls" }, label, heads),
    facts,
    reading,
    element("div", { class: "grid" }, axis, scroller),
    legend,
    notes,
    saves,
  );
  return { range, legend, stepName, heads, facts, axis, field, scroller, scale, scaleName, reading, notes };
}

// Positions, bytes by formula, bytes in the running cache, difference, what this step wrote.
function cacheFacts(cache, { fill, step }) {
  const fact = (mark, label, value, unit = "") =>
    element(
      "span",
      {},
      mark ? element("i", { class: mark }) : null,
      `${label} `,
      element("b", { class: "number" }, value),
      unit && `\u2006${unit}`,
    );
  if (!fill) return [fact("", "positions", "0")];
  const [length, calculated, used] = fill;
  const facts = [
    fact("", "positions", groupDigits(length)),
    fact("ring", "calculated", groupDigits(calculated), "B"),
    fact("disc", "in the cache", groupDigits(used), "B"),
    fact("", "difference", groupDigits(used - calculated)),
  ];
  if (cache.allocated !== null) facts.push(fact("disc", "allocated", groupDigits(cache.allocated), "B"));
  if (step > 0)
    facts.push(element("span", {}, "this step wrote ", element("b", {}, tokenText(cache.pieces[length - 1] ?? []))));
  return facts;
}

function cacheNotes(cache, layout, broken) {
  const notes = [];
  if (layout.factor > 1) notes.push(`Each cell is the maximum over ${layout.factor} positions.`);
  if (cache.windows.some((window) => window !== null))
    notes.push("Hatched: stored once, and gone since it left the layer's window.");
  if (broken) notes.push(`Not finite, and crossed: ${groupDigits(broken)} of the lengths shown.`);
  return notes;
}

function longestLabel(cache, colours) {
  const pen = new OffscreenCanvas(1, 1).getContext("2d");
  pen.font = `11px ${colours.mono}`;
  return Math.ceil(cache.labels.reduce((widest, label) => Math.max(widest, pen.measureText(label).width), 0));
}

function showColumn(scroller, x) {
  if (x < scroller.scrollLeft || x > scroller.scrollLeft + scroller.clientWidth - 24)
    scroller.scrollLeft = x - scroller.clientWidth / 2;
}

function listenToCells(field, layoutNow, cache, cellNow, setCell) {
  const within = (layout, layer, column) => layer >= 0 && layer < cache.layers && column >= 0 && column < layout.count;
  field.onpointermove = (event) => {
    const layout = layoutNow();
    const box = field.getBoundingClientRect();
    const layer = Math.floor((event.clientY - box.top - layout.top) / layout.row);
    const column = Math.floor((event.clientX - box.left) / layout.column);
    setCell(within(layout, layer, column) ? { layer, column } : null);
  };
  field.onpointerleave = () => setCell(null);
  field.onblur = () => setCell(null);
  field.onkeydown = (event) => {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const from = cellNow();
    const to = from ? { layer: from.layer + move[0], column: from.column + move[1] } : { layer: 0, column: 0 };
    if (within(layoutNow(), to.layer, to.column)) setCell(to);
  };
}
