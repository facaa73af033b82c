// All attention maps of one forward pass. Looking around happens here and in the page's address; Python hears only of a layer
// (or head) whose exact weights the payload does not hold.

const VIEW_NAMES = ["layer", "head", "query", "key", "grid", "scale", "zoom"];
const SCALES = [
  ["raw", "raw"],
  ["without-sink", "without sink"],
];
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
    gridAxis: element("canvas", { class: "grid-axis", "aria-hidden": "true" }),
    grid: element("canvas", { class: "grid", tabindex: 0, role: "application", "aria-roledescription": "all heads" }),
    gridNote: element("div", { class: "note" }),
    title: element("div", { class: "title" }),
    hover: element("span", { class: "note hover" }),
    map: element("canvas", { class: "map", tabindex: 0, role: "application", "aria-roledescription": "attention map" }),
    bar: element("canvas", { class: "bar", role: "img", "aria-label": "colour bar: weights from 0 to 1, colour by the square root" }),
    mapNote: element("div", { class: "note" }),
    save: element("div"),
    reading: element("div", { class: "reading", "aria-live": "polite" }),
    rugs: element("div"),
  };
  nodes.gridBox = element("div", { class: "grid-box" }, nodes.gridAxis, nodes.grid);
  nodes.enlarged = element("div", { class: "enlarged" }, nodes.title, nodes.map, nodes.bar, nodes.mapNote, nodes.save);
  const root = element(
    "div",
    { class: "attention" },
    element("div", { class: "top" }, nodes.legend, nodes.strip),
    element("div", { class: "line" }),
    nodes.modes,
    nodes.scale,
    element("div", { class: "heads" }, nodes.gridBox, nodes.gridNote),
    nodes.enlarged,
    element("div", { class: "side" }, nodes.reading, nodes.rugs),
  );
  const page = { host, root, nodes, view: null, given: {}, ask: () => {}, asked: "", field: null, chips: null };
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
  page.colours = themeColours(page.host);
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
  const view = page.view ? { ...page.view } : { zoom: 0, ...meta.view, ...chosen };
  if (page.view)
    for (const [name, value] of Object.entries(meta.view))
      if (page.given[name] !== value && chosen[name] !== String(page.view[name])) view[name] = value;
  page.given = meta.view;
  const valid = validView(page.field, view);
  const moved = Object.keys(chosen).filter((name) => chosen[name] !== String(valid[name]));
  if (moved.length) viewToUrl(Object.fromEntries(moved.map((name) => [name, valid[name]])));
  return valid;
}

function validView(field, view) {
  const within = (value, end, otherwise) => {
    const number = Number.parseInt(value, 10);
    return Number.isNaN(number) ? otherwise : Math.max(0, Math.min(end - 1, number));
  };
  const grids = ["maps", "cell", ...field.metrics.map((metric) => metric.key)];
  const layer = within(view.layer, field.layers, 0);
  const query = within(view.query, field.tokens, field.tokens - 1);
  return {
    layer,
    head: within(view.head, field.heads, 0),
    query,
    key: nearestKey(field, layer, query, within(view.key, field.tokens, 0)),
    grid: grids.includes(view.grid) ? view.grid : "maps",
    scale: SCALES.some(([name]) => name === view.scale) ? view.scale : "raw",
    zoom: within(view.zoom, 2, 0),
  };
}

function change(page, difference) {
  page.view = validView(page.field, { ...page.view, ...difference });
  const { grid, scale, zoom, ...cell } = page.view;
  draw(page);
  viewToUrl({ ...cell, grid: grid === "maps" ? null : grid, scale: scale === "raw" ? null : scale, zoom: zoom || null }, () => askIfAbsent(page));
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
  page.map = mapLayout(field, view, room.map, room.narrow, page.measure);
  drawRugs(page.rugs, field, view, room.side, colours);
  drawHeads(page, room);
  const shown = drawMap(nodes.map, field, view, page.map, ramp, colours);
  const cell = field.cell(view.layer, view.head, view.query, view.key, view.scale);
  drawColourBar(nodes.bar, view, page.map, cell.value, shown.values.some((value) => value > 1), ramp, colours);
  drawStrip(page);
  drawSwitches(page);
  drawTitle(page);
  drawReading(nodes.reading, field, view, (key) => change(page, { key }));
  nodes.mapNote.replaceChildren(...mapNotes(page));
  nodes.map.setAttribute("aria-label", `Layer ${view.layer}, head ${view.head}. ${hoverText(field, view, cell)}. Arrow keys move.`);
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
  page.grid = gridLayout(field, room.grid.width, room.narrow);
  const made = [view.scale, page.grid.thumb, pixelRatio()].join();
  if (page.thumbnails?.made !== made) page.thumbnails = { made, ...paintThumbnails(field, view.scale, page.grid, ramp, colours) };
  drawHeadAxis(nodes.gridAxis, field, view, page.grid, colours);
  drawGrid(nodes.grid, field, view, page.grid, page.thumbnails, ramp, colours);
  const count = groupDigits(field.layers * field.heads);
  nodes.grid.setAttribute("aria-label", `All ${count} heads; layer ${view.layer}, head ${view.head} is selected. Arrow keys move.`);
  nodes.gridNote.textContent = gridNote(field, view.grid);
  keepInSight(nodes.gridBox, room.grid, page.grid, view);
}

function drawSwitches({ view, nodes }) {
  for (const button of nodes.modes.querySelectorAll("button")) button.setAttribute("aria-pressed", button.dataset.value === view.grid);
  for (const button of nodes.scale.querySelectorAll("button")) button.setAttribute("aria-pressed", button.dataset.value === view.scale);
}

function buildSwitches(page) {
  const { nodes, field, view } = page;
  const grids = [["maps", "maps"], ["cell", "this cell"], ...field.metrics.map(({ key, short }) => [key, short])];
  const caption = (text) => element("span", { class: "caption" }, text);
  nodes.modes.replaceChildren(caption("In the grid"), buttonRow("what the grid shows", grids, view.grid, (grid) => change(page, { grid })));
  nodes.scale.replaceChildren(caption("Scale"), buttonRow("scale of the weights", SCALES, view.scale, (scale) => change(page, { scale })));
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

function drawTitle(page) {
  const { field, view, nodes, map } = page;
  const zoom = map.zooms
    ? element("button", { type: "button", class: "quiet", onclick: () => change(page, { zoom: 1 - view.zoom }) }, map.zoomed ? "whole map" : "zoom in")
    : null;
  nodes.title.replaceChildren(
    element("h3", {}, `Layer ${view.layer}, head ${view.head}`),
    element("span", { class: "note" }, `reads KV head ${Math.floor(view.head / field.groupSize)}`),
    ...(zoom ? [zoom] : []),
    nodes.hover,
  );
}

function mapNotes({ field, view, map }) {
  const notes = [];
  const bad = field.notFinite(view.layer, view.head);
  if (bad) notes.push(element("p", { class: "bad" }, `${groupDigits(bad)} ${bad === 1 ? "cell of this head is" : "cells of this head are"} NaN or infinite`));
  if (map.block > 1) notes.push(element("p", {}, `each cell is the maximum of ${map.block} × ${map.block}; a click selects the largest, zoom in to see them`));
  if (map.zoomed) notes.push(element("p", {}, `queries ${map.firstQuery} to ${map.firstQuery + map.shown - 1}, keys ${map.firstKey} to ${map.firstKey + map.shown - 1} of ${field.tokens}`));
  if (!field.allExact) notes.push(element("p", {}, `in the grid each cell is the maximum of ${field.block} × ${field.block}`));
  if (view.scale !== "raw") notes.push(element("p", {}, "position 0 is left out and each row divided by what is left of it"));
  return notes;
}

// The selected head is never scrolled out of the grid's box.
function keepInSight(box, { width, height, scrollTop, scrollLeft }, grid, { layer, head }) {
  const [x, y] = [grid.x(head), grid.y(layer)];
  const rows = height - HEAD_AXIS;
  if (rows > 0 && (y < scrollTop || y + grid.pitch > scrollTop + rows)) box.scrollTop = y - rows / 2;
  if (x < scrollLeft || x + grid.pitch > scrollLeft + width) box.scrollLeft = x - width / 2;
}
