// All attention maps of one forward pass. Looking around happens here and in the page's address; Python hears only of a layer
// (or head) whose exact weights the payload does not hold.

const VIEW_NAMES = ["layer", "head", "query", "key", "grid", "scale", "zoom", "order", "least", "figure", "of", "pins", "faint", "only"];
// What the address leaves out: the view when nothing of this kind was chosen.
const PLAIN_VIEW = { grid: "maps", scale: "raw", zoom: 0, order: "place", least: null, figure: "map", of: "head", pins: "", faint: 0.02, only: "" };
const NEEDLE_LENGTH = 26;

export default function ({ data, parentElement, setStateValue }) {
  const host = parentElement.querySelector(".gb");
  const page = mounted(parentElement, () => buildPage(host));
  if (!host.contains(page.root)) host.replaceChildren(page.root);
  page.ask = (view) => setStateValue("wanted", view);
  page.load(unpack(data), data);
  return () => {
    page.stop();
    unmount(parentElement);
  };
}

// The elements, made once for a mount, with the state that they show.
function buildPage(host) {
  const nodes = {
    legend: element("div", { class: "note legend" }),
    strip: element("div", { class: "strip-place" }),
    modes: element("div", { class: "modes" }),
    scale: element("div", { class: "scale" }),
    sift: element("div", { class: "sift" }),
    gridAxis: element("canvas", { class: "grid-axis", "aria-hidden": "true" }),
    grid: element("canvas", { class: "grid", tabindex: 0, role: "application", "aria-roledescription": "all heads" }),
    gridNote: element("div", { class: "note" }),
    title: element("div", { class: "title" }),
    hover: element("span", { class: "note hover" }),
    map: element("canvas", { class: "map", tabindex: 0, role: "application", "aria-roledescription": "attention map" }),
    bar: element("canvas", { class: "bar", role: "img", "aria-label": "colour bar: weights from 0 to 1, colour by the square root" }),
    lines: element("canvas", { class: "lines", tabindex: 0, role: "application", "aria-roledescription": "lines between tokens" }),
    lineTools: element("div", { class: "line-tools" }),
    mapNote: element("div", { class: "note" }),
    save: element("div"),
    reading: element("div", { class: "reading", "aria-live": "polite" }),
    rugs: element("div"),
  };
  nodes.gridBox = element("div", { class: "grid-box" }, nodes.gridAxis, nodes.grid);
  nodes.enlarged = element("div", { class: "enlarged" }, nodes.title, nodes.lineTools, nodes.map, nodes.bar, nodes.lines, nodes.mapNote, nodes.save);
  const root = element(
    "div",
    { class: "attention" },
    element("div", { class: "top" }, nodes.legend, nodes.strip),
    element("div", { class: "line" }),
    nodes.modes,
    nodes.scale,
    element("div", { class: "heads" }, nodes.sift, nodes.gridBox, nodes.gridNote),
    nodes.enlarged,
    element("div", { class: "side" }, nodes.reading, nodes.rugs),
  );
  const page = { host, root, nodes, view: null, pointed: null, given: {}, ask: () => {}, asked: "", field: null, chips: null };
  const measure = element("canvas").getContext("2d");
  page.measure = (texts, size) => {
    measure.font = `500 ${size}px ${page.colours.mono}`;
    return Math.max(...texts.map((text) => measure.measureText(text).width));
  };
  nodes.save.append(saveButtons(page));
  page.load = (payload, data) => load(page, payload, data);
  const stops = [onWidth(root, () => page.field && draw(page)), ...["layer", "head", "query", "key"].map((name) => onView(name, (value) => follow(page, name, Number(value))))];
  page.stop = () => stops.forEach((stop) => stop());
  listen(page);
  listenToLines(page);
  return page;
}

// A new payload or a new theme.
function load(page, payload, data) {
  if (page.data !== data) {
    page.data = data;
    page.field = readField(payload);
    page.chips = chipStrip(page.field.parts, "the prompt's tokens", (query) => change(page, { query }));
    page.nodes.strip.replaceChildren(page.chips.node);
    page.rugs = buildRugs(page.field);
    page.nodes.rugs.replaceChildren(page.rugs.node);
    page.view = startView(page, payload.meta);
    buildSwitches(page);
  }
  page.colours = { ...themeColours(page.host), series: lineColours(page.host) };
  page.ramp = themeRamp(page.host);
  page.thumbnails = null;
  draw(page);
  askIfAbsent(page);
  whenFontsLoad(() => page.field && draw(page));
}

// At first the payload's view, and over it the address. Later what the payload says differently from before, but not where the
// reader has chosen, which the address then says too: another prompt keeps the layer and head that are being looked at.
function startView(page, meta) {
  const chosen = viewFromUrl(VIEW_NAMES);
  const view = page.view ? { ...page.view } : { ...PLAIN_VIEW, ...meta.view, ...chosen };
  if (page.view)
    for (const [name, value] of Object.entries(meta.view))
      if (page.given[name] !== value && chosen[name] !== String(page.view[name])) view[name] = value;
  page.given = meta.view;
  const valid = validView(page.field, view);
  const moved = Object.keys(chosen).filter((name) => chosen[name] !== String(valid[name]));
  if (moved.length) viewToUrl(Object.fromEntries(moved.map((name) => [name, inAddress(valid)[name]])));
  return valid;
}

function validView(field, view) {
  const within = (value, end, otherwise) => {
    const number = Number.parseInt(value, 10);
    return Number.isNaN(number) ? otherwise : Math.max(0, Math.min(end - 1, number));
  };
  const oneOf = (name, values) => (values.includes(view[name]) ? view[name] : PLAIN_VIEW[name]);
  const layer = within(view.layer, field.layers, 0);
  const query = within(view.query, field.tokens, field.tokens - 1);
  const grid = oneOf("grid", ["maps", "cell", ...field.metrics.map((metric) => metric.key)]);
  const least = view.least == null || view.least === "" ? NaN : Number(view.least);
  return {
    layer,
    head: within(view.head, field.heads, 0),
    query,
    key: nearestKey(field, layer, query, within(view.key, field.tokens, 0)),
    grid,
    scale: oneOf("scale", SCALES.map(([name]) => name)),
    zoom: within(view.zoom, 2, 0),
    order: oneOf("order", ORDERS.map(([name]) => name)),
    least: least > 0 && least <= scoreTop(field, grid) ? least : null,
    figure: oneOf("figure", FIGURES.map(([name]) => name)),
    of: oneOf("of", ["head", "group", "pinned"]),
    pins: pinsOf(field, view).map(pinName).join(","),
    faint: FAINTEST.includes(Number(view.faint)) ? Number(view.faint) : PLAIN_VIEW.faint,
    only: oneOf("only", ["", "query", "key"]),
  };
}

// The view as the address has it: null for what is plain.
const inAddress = (view) => Object.fromEntries(Object.entries(view).map(([name, value]) => [name, name in PLAIN_VIEW && value === PLAIN_VIEW[name] ? null : value]));

function change(page, difference) {
  page.view = validView(page.field, { ...page.view, ...difference });
  draw(page);
  viewToUrl(inAddress(page.view), () => askIfAbsent(page));
}

// Another component of the page moved the view; it has told the address.
function follow(page, name, value) {
  if (!page.field || page.view[name] === value) return;
  page.view = validView(page.field, { ...page.view, [name]: value });
  window.cancelAnimationFrame(page.frame);
  page.frame = window.requestAnimationFrame(() => page.field && draw(page));
  askIfAbsent(page);
}

// Asks Python for the selected head's exact weights, once: what it does not send is not asked for again and again.
function askIfAbsent(page) {
  const { layer, head } = page.view;
  const wanted = page.field.has(layer, head) ? "" : `${layer} ${head}`;
  if (wanted && wanted !== page.asked) page.ask({ layer, head });
  page.asked = wanted;
}

// ---- Drawing: everything, within a frame. Measured first, then the canvases, then the elements: no write forces a layout. ---

function draw(page) {
  const { field, nodes, colours, ramp, view } = page;
  const room = measured(page);
  const asLines = view.figure === "lines";
  for (const node of [nodes.map, nodes.bar]) node.hidden = asLines;
  for (const node of [nodes.lines, nodes.lineTools]) node.hidden = !asLines;
  page.map = mapLayout(field, view, room.map, room.narrow, page.measure);
  drawRugs(page.rugs, field, view, room.side, colours);
  drawHeads(page, room);
  let shown = null;
  if (asLines) drawLinesFigure(page, room);
  else {
    shown = drawMap(nodes.map, field, view, page.map, ramp, colours);
    const cell = field.cell(view.layer, view.head, view.query, view.key, view.scale);
    drawColourBar(nodes.bar, view, page.map, cell.value, shown.values.some((value) => value > 1), ramp, colours);
    nodes.map.setAttribute("aria-label", `Layer ${view.layer}, head ${view.head}. ${hoverText(field, view, cell)}. Arrow keys move.`);
    nodes.mapNote.replaceChildren(...mapNotes(page).map(noteLine));
  }
  drawStrip(page);
  drawSwitches(page);
  drawTitle(page);
  drawReading(nodes.reading, field, view, (key) => change(page, { key }));
  Object.assign(nodes.map.dataset, view, { block: page.map.block });
  expose(page, shown);
}

function measured({ root, nodes, field }) {
  const narrow = root.clientWidth < 760;
  root.classList.toggle("wide", !narrow && gridLayout(field, 0, false).width > 300);
  const box = nodes.gridBox;
  const { scrollTop, scrollLeft, clientWidth, clientHeight } = box;
  return {
    narrow,
    map: nodes.enlarged.clientWidth,
    side: nodes.rugs.clientWidth || 200,
    grid: { width: clientWidth || 224, height: clientHeight, scrollTop, scrollLeft },
  };
}

function drawHeads(page, room) {
  const { field, nodes, view, ramp, colours } = page;
  const ranks = rankHeads(field, view);
  page.grid = gridLayout(field, room.grid.width, room.narrow, ranks);
  const made = [view.scale, page.grid.thumb, pixelRatio()].join();
  if (page.thumbnails?.made !== made) page.thumbnails = { made, ...paintThumbnails(field, view.scale, page.grid, ramp, colours) };
  const pins = view.figure === "lines" && view.of !== "head" ? lineHeads(field, view, colours) : [];
  drawHeadAxis(nodes.gridAxis, field, view, page.grid, colours);
  drawGrid(nodes.grid, field, view, page.grid, ranks, page.thumbnails, ramp, colours, pins);
  const count = groupDigits(field.layers * field.heads);
  const stand = page.grid.order ? `${groupDigits(page.grid.order.length)} of ${count} heads, ranked` : `All ${count} heads`;
  nodes.grid.setAttribute("aria-label", `${stand}; layer ${view.layer}, head ${view.head} is selected. Arrow keys move, P pins.`);
  nodes.grid.order = page.grid.order;
  nodes.gridNote.replaceChildren(...gridNotes(field, view, ranks).map(noteLine));
  drawSift(page, ranks);
  keepInSight(nodes.gridBox, room.grid, page.grid, view);
}

// Without the rest of the page: what follows the pointer.
function drawLinesFigure(page, room = measured(page)) {
  const { field, nodes, view, colours } = page;
  const token = page.pointed ?? (view.only ? { side: view.only, position: view[view.only] } : null);
  const heads = lineHeads(field, view, colours);
  page.lines = linesLayout(field, room.map, room.narrow, page.measure);
  const found = drawLines(nodes.lines, field, view, page.lines, heads, token, colours);
  const notes = linesNotes(field, view, heads, found, token);
  nodes.mapNote.replaceChildren(...notes.map(noteLine));
  drawLineTools(page, heads);
  exposeLines(page, heads, found, token, notes);
}

function drawStrip(page) {
  const { field, view, nodes } = page;
  const row = field.row(view.layer, view.head, view.query, view.scale);
  const what = view.scale === "raw" ? "weight" : "share of what is left, without position 0,";
  nodes.legend.replaceChildren(element("i", { class: "weight" }), `${what} that position `, element("b", { class: "number" }, String(view.query)), " gives to each token it may read; click a token to ask from there");
  page.chips.update({
    current: view.query,
    key: view.key,
    needle: (position) => {
      const { state, value } = row[position];
      if (state === MASKED) return { kind: "masked", title: "masked" };
      if (state !== VALUE) return { kind: "none", title: cellText(row[position]) };
      return { kind: "weight", height: value > 0 ? Math.max(1, Math.min(1, value) * NEEDLE_LENGTH) : 0, title: weightText(value) };
    },
  });
}

// The selected head is never scrolled out of the grid's box.
function keepInSight(box, { width, height, scrollTop, scrollLeft }, grid, { layer, head }) {
  const place = grid.place(layer, head);
  if (!place) return;
  const { x, y } = place;
  const rows = height - (grid.order ? 0 : HEAD_AXIS);
  if (rows > 0 && (y < scrollTop || y + grid.pitch > scrollTop + rows)) box.scrollTop = y - rows / 2;
  if (x < scrollLeft || x + grid.pitch > scrollLeft + width) box.scrollLeft = x - width / 2;
}
