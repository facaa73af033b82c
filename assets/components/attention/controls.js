// The rows of buttons, the filter of heads, the title over the figure and the notes under it.

const SCALES = [
  ["raw", "raw"],
  ["without-sink", "without sink"],
];
const FIGURES = [
  ["map", "map"],
  ["lines", "lines"],
];
const OF_HEADS = [
  ["head", "this head"],
  ["group", "heads of this KV head"],
  ["pinned", "pinned heads"],
];

const noteLine = (note) => (note instanceof Node ? note : element("p", {}, note));
const captioned = (text) => element("span", { class: "caption" }, text);

function buildSwitches(page) {
  const { nodes, field, view } = page;
  const grids = [["maps", "maps"], ["cell", "this cell"], ...field.metrics.map(({ key, short }) => [key, short])];
  const row = (label, options, name) => buttonRow(label, options, view[name], (value) => change(page, { [name]: value }));
  // a threshold of one score means nothing for another
  nodes.modes.replaceChildren(captioned("In the grid"), buttonRow("what the grid shows", grids, view.grid, (grid) => change(page, { grid, least: null })));
  const pair = (caption, buttons) => element("span", { class: "pair" }, captioned(caption), buttons);
  nodes.scale.replaceChildren(pair("Drawn as", row("how weights are drawn", FIGURES, "figure")), pair("Scale", row("scale of the weights", SCALES, "scale")));
  buildSift(page);
  buildLineTools(page);
}

function drawSwitches({ view, nodes }) {
  press(nodes.modes, view.grid);
  press(nodes.scale, view.scale, view.figure);
}

// Marks the buttons whose value is one of these.
function press(node, ...values) {
  for (const button of node.querySelectorAll("button[data-value]")) button.setAttribute("aria-pressed", values.includes(button.dataset.value));
}

// ---- Order and threshold of the heads --------------------------------------------------------------------------------

function buildSift(page) {
  const slider = element("input", { type: "range", min: 0, max: 100, step: 1, "aria-label": "only heads with at least this score" });
  slider.oninput = () => {
    const least = (Number(slider.value) / 100) * scoreTop(page.field, page.view.grid);
    change(page, { least: least > 0 ? Number(least.toPrecision(4)) : null });
  };
  const said = element("span", { class: "note" });
  page.sift = { slider, said };
  page.nodes.sift.replaceChildren(buttonRow("order of the heads", ORDERS, page.view.order, (order) => change(page, { order })), element("label", { class: "threshold" }, said, slider));
}

function drawSift({ sift: { slider, said }, nodes, field, view }, ranks) {
  nodes.sift.hidden = !ranks;
  if (!ranks) return;
  press(nodes.sift, view.order);
  const place = view.least === null ? 0 : Math.round((100 * view.least) / scoreTop(field, view.grid));
  if (Number(slider.value) !== place) slider.value = place;
  const text = view.least === null ? "all scores" : `scores from ${scoreText(field, view.grid, view.least)}`;
  slider.setAttribute("aria-valuetext", `${text}, ${ranks.passing} heads`);
  said.textContent = text;
}

// ---- What the lines are of -------------------------------------------------------------------------------------------

function buildLineTools(page) {
  const slider = element("input", { type: "range", min: 0, max: FAINTEST.length - 1, step: 1, "aria-label": "smallest weight that is drawn" });
  slider.oninput = () => change(page, { faint: FAINTEST[Number(slider.value)] });
  const said = element("span", { class: "note" });
  const legend = element("div", { class: "line-heads" });
  page.lineTools = { slider, said, legend };
  const whose = buttonRow("whose lines", OF_HEADS, page.view.of, (of) => change(page, { of }));
  page.nodes.lineTools.replaceChildren(whose, element("label", { class: "threshold" }, said, slider), legend);
}

function drawLineTools(page, heads) {
  const { lineTools: { slider, said, legend }, nodes, view, field } = page;
  press(nodes.lineTools, view.of);
  slider.value = FAINTEST.indexOf(view.faint);
  const text = view.faint ? `lines from ${view.faint} up` : "all lines";
  slider.setAttribute("aria-valuetext", text);
  said.textContent = text;
  const wanted = heads.map((head) => `${pinName(head)} ${head.colour}`).join() + [view.layer, view.head, view.of];
  if (legend.dataset.wanted === wanted) return;
  legend.dataset.wanted = wanted;
  const kept = legend.getRootNode().activeElement?.dataset?.head;
  legend.replaceChildren(
    ...heads.map(({ layer, head, colour, known }) =>
      element(
        "button",
        { type: "button", class: "line-head", "data-head": `${layer}.${head}`, "aria-pressed": layer === view.layer && head === view.head, onclick: () => change(page, { layer, head }) },
        element("i", { style: `background:${colour}` }),
        `layer ${layer}, head ${head}`,
        known ? null : " (not here)",
      ),
    ),
    ...(view.of === "pinned" && !pinsOf(field, view).length ? [element("span", { class: "note" }, "None is pinned: Shift or Ctrl and a click in the grid, P on its heads, or the button above.")] : []),
  );
  if (kept) legend.querySelector(`[data-head="${kept}"]`)?.focus({ preventScroll: true });
}

// ---- Over and under the figure ---------------------------------------------------------------------------------------

function drawTitle(page) {
  const { field, view, nodes, map } = page;
  const quiet = (text, difference) => element("button", { type: "button", class: "quiet", "data-name": text, onclick: () => change(page, difference()) }, text);
  const asLines = view.figure === "lines";
  const pinned = pinsOf(field, view).some(({ layer, head }) => layer === view.layer && head === view.head);
  const kept = nodes.title.contains(nodes.title.getRootNode().activeElement);
  nodes.title.replaceChildren(
    element("h3", {}, `Layer ${view.layer}, head ${view.head}`),
    element("span", { class: "note" }, `reads KV head ${Math.floor(view.head / field.groupSize)}`),
    ...(!asLines && map.zooms ? [quiet(map.zoomed ? "whole map" : "zoom in", () => ({ zoom: 1 - page.view.zoom }))] : []),
    ...(asLines ? [quiet(pinned ? "unpin" : "pin", () => togglePin(page.field, page.view, page.view))] : []),
    nodes.hover,
  );
  if (kept) nodes.title.querySelector("button")?.focus({ preventScroll: true });
}

function mapNotes({ field, view, map }) {
  const notes = [];
  const bad = field.notFinite(view.layer, view.head);
  if (bad) notes.push(element("p", { class: "bad" }, `${groupDigits(bad)} ${bad === 1 ? "cell of this head is" : "cells of this head are"} NaN or infinite`));
  if (map.block > 1) notes.push(`each cell is the maximum of ${map.block} × ${map.block}; a click selects the largest, zoom in to see them`);
  if (map.zoomed) notes.push(`queries ${map.firstQuery} to ${map.firstQuery + map.shown - 1}, keys ${map.firstKey} to ${map.firstKey + map.shown - 1} of ${field.tokens}`);
  if (!field.allExact) notes.push(`in the grid each cell is the maximum of ${field.block} × ${field.block}`);
  if (view.scale !== "raw") notes.push("position 0 is left out and each row divided by what is left of it");
  return notes;
}
