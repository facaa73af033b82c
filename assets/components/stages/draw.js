// Everything that a view shows, drawn within a frame: the matrix in its place, or the group's side by side.

const PANEL_GAP = 20;

function draw(page) {
  const { field, nodes, view, root } = page;
  const waiting = !held(page);
  const narrow = root.clientWidth < 760;
  const group = view.show === GROUP && !waiting;
  root.classList.toggle("side-by-side", group);
  root.classList.toggle("waiting", waiting);
  page.head = waiting ? Math.max(0, Math.min(field.meta.heads - 1, view.head - field.meta.first_head)) : view.head - field.meta.first_head;
  page.room = { main: nodes.main.clientWidth, side: Math.max(120, nodes.made.clientWidth), narrow };
  const stage = field.byKey[view.stage];
  page.cell = chosenCell(page, stage);
  const { row, column } = page.cell;
  const { value, state } = field.cell(stage.key, page.head, row, column);
  nodes.matrix.style.display = group ? "none" : "";
  nodes.panels.style.display = group ? "" : "none";
  const found = group ? drawGroup(page, stage) : drawOne(page, stage, narrow);
  drawBar(nodes.bar, stage, page.layout, state === VALUE ? value : null, found.beyond > 0, page.ramps[stage.field], page.colours);
  nodes.bar.setAttribute("aria-label", stage.field === "weight" ? "colour bar: weights from 0 to 1, colour by the square root" : `colour bar: from ${signedText(-stage.limit)} to ${signedText(stage.limit)}`);
  drawTitle(page, stage, waiting);
  drawControls(page);
  drawMade(page, row, column);
  drawText(page);
  nodes.notes.replaceChildren(...notes(page, stage, found, waiting).map((text) => element("p", {}, text)));
  nodes.matrix.setAttribute("aria-label", `${stage.title}, layer ${field.meta.layer}. ${cellText(page, row, column)}. Arrow keys move.`);
  nodes.said.textContent = `${stage.title}: ${cellText(page, row, column)}`;
  Object.assign(root.dataset, { stage: stage.key, layer: field.meta.layer, head: field.meta.first_head + page.head, query: view.query, key: view.key, show: view.show, row, column, waiting });
  expose(page);
}

// The followed row, and in it the chosen key or dim; where none is chosen yet, the largest.
function chosenCell({ field, view, head }, stage) {
  const rowOf = (position, otherwise) => field.rowOf(position) ?? otherwise;
  const row = rowOf(stage.rows === "key" ? view.key : view.query, field.rows - 1);
  if (stage.columns === "key") return { row, column: rowOf(view.key, 0) };
  const dim = stage.columns === "model" ? view.wide : view.dim;
  return { row, column: dim === null || dim >= field.columns(stage.key) ? largestColumn(field, stage.key, head, row) : dim };
}

function drawOne(page, stage, narrow) {
  const { field, nodes, colours, ramps, head } = page;
  page.layout = matrixLayout(field, stage.key, page.room.main, { narrow, bare: false, measure: page.measure });
  const found = drawMatrix(nodes.matrix, field, stage.key, head, page.layout, ramps, colours);
  const chosen = { ...page.cell, ink: stage.rows === "key" };
  drawLabels(found.context, field, stage.key, head, page.layout, chosen, colours);
  drawSeam(found.context, field, stage, page.layout, colours);
  drawChosen(found.context, page.layout, chosen, colours);
  drawMaskName(found.context, field, stage.key, page.layout, colours);
  return found;
}

// A cell that the keyboard reached is scrolled into sight.
function revealCell({ nodes, layout, cell }) {
  const x = layout.left + Math.floor(cell.column / layout.block) * layout.cellWidth;
  const { scrollLeft, clientWidth } = nodes.box;
  if (x < scrollLeft || x + layout.cellWidth > scrollLeft + clientWidth) nodes.box.scrollLeft = x - clientWidth / 2;
}

// The same stage of every head of the group, and under it the K and V that they share.
function drawGroup(page, stage) {
  const { field, nodes, colours, ramps, room } = page;
  const abreast = room.narrow ? 1 : Math.min(field.meta.heads, 3);
  const width = Math.floor((room.main - (abreast - 1) * PANEL_GAP) / abreast);
  const keys = field.byKey.rot_k ? "rot_k" : "k";
  const own = stage.shared ? [] : Array.from({ length: field.meta.heads }, (_, head) => ({ key: stage.key, head, name: `head ${field.meta.first_head + head}` }));
  const shared = [keys, "v"].map((key) => ({ key, head: 0, name: `${field.byKey[key].title}, shared, ±${signedText(field.byKey[key].limit)}` }));
  const alone = stage.shared && !["k", "rot_k", "v"].includes(stage.key) ? [{ key: stage.key, head: 0, name: stage.title }] : [];
  const total = { beyond: 0, broken: 0 };
  const panel = ({ key, head, name }) => {
    const canvas = element("canvas", { class: "panel", role: "img", "data-matrix": key, "data-head": field.meta.first_head + head });
    const layout = matrixLayout(field, key, width, { narrow: true, bare: true, measure: page.measure });
    const found = drawMatrix(canvas, field, key, head, layout, ramps, colours);
    if (key === stage.key) {
      total.beyond += found.beyond;
      total.broken += found.broken;
    }
    const rows = field.byKey[key].rows;
    const row = field.rowOf(rows === "key" ? page.view.key : page.view.query);
    drawChosen(found.context, layout, { row, column: field.byKey[key].columns === "key" ? field.rowOf(page.view.key) ?? null : null, ink: rows === "key" }, colours);
    const mine = !field.byKey[key].shared && head === page.head;
    canvas.setAttribute("aria-label", name);
    canvas.onclick = (event) => {
      const cell = cellUnder(field, key, head, layout, event.offsetX, event.offsetY);
      if (cell && key === stage.key) choosePanel(page, head, cell);
    };
    canvas.valueAt = (r, c) => field.cell(key, head, r, c);
    page.layout = layout;
    return element("figure", { class: mine ? "mine" : "" }, element("figcaption", { class: "note" }, name), canvas);
  };
  const row = (list) => element("div", { class: "panel-row" }, list.map(panel));
  const under = row(shared); // first, so that the layout that stays is the stage's own
  nodes.panels.replaceChildren(row([...own, ...alone]), under);
  page.layout = { ...page.layout, left: 24, side: Math.min(room.main - 60, 420), space: 420 };
  return total;
}

function choosePanel(page, head, cell) {
  page.view = { ...page.view, head: page.field.meta.first_head + head };
  choose(page, cell);
}

function drawTitle({ field, nodes, view, head }, stage, waiting) {
  const { meta } = field;
  const index = field.stages.indexOf(stage) + 1;
  const of = stage.shared ? (["k", "v", "rot_k"].includes(stage.key) ? `, KV head ${Math.floor(meta.first_head / meta.group_size)}` : "") : view.show === GROUP ? ", side by side" : `, head ${meta.first_head + head}`;
  nodes.title.textContent = `${stage.title}${of}`;
  const wide = { model: meta.d_model, key: field.tokens }[stage.columns] ?? field.columns(stage.key);
  nodes.shape.textContent = `${index} of ${field.stages.length}, layer ${meta.layer}, ${groupDigits(field.tokens)} × ${groupDigits(wide)}`;
  nodes.shape.classList.toggle("late", waiting);
  nodes.formula.replaceChildren(...formulaParts(stage.formula));
}

// _Q and ^T become a subscript and a superscript.
function formulaParts(text) {
  return text.split(/([_^][\p{L}\p{N}]+)/u).map((part) => (/^[_^]./u.test(part) ? element(part[0] === "_" ? "sub" : "sup", {}, part.slice(1)) : part));
}

function drawControls({ field, nodes, view }) {
  nodes.layer.value = String(view.layer);
  nodes.head.value = String(view.head);
  const index = field.stages.findIndex(({ key }) => key === view.stage);
  for (const button of nodes.stages.children) {
    const on = button.dataset.stage === view.stage;
    button.setAttribute("aria-pressed", on);
    button.tabIndex = on ? 0 : -1;
    if (on && (button.offsetLeft < nodes.stages.scrollLeft || button.offsetLeft + button.offsetWidth > nodes.stages.scrollLeft + nodes.stages.clientWidth)) nodes.stages.scrollLeft = button.offsetLeft - nodes.stages.clientWidth / 3;
  }
  nodes.previous.disabled = index === 0;
  nodes.next.disabled = index === field.stages.length - 1;
  nodes.play.hidden = reducedMotion();
  for (const button of nodes.group.querySelectorAll("button")) button.setAttribute("aria-pressed", button.dataset.value === (view.show === GROUP ? GROUP : String(view.head)));
}

function notes({ field, view, layout }, stage, { beyond, broken }, waiting) {
  const found = [];
  if (waiting) found.push(`Layer ${view.layer}, head ${view.head}, position ${view.query} is on its way; shown is layer ${field.meta.layer}.`);
  if (broken) found.push(`${groupDigits(broken)} ${broken === 1 ? "cell is" : "cells are"} NaN or infinite.`);
  if (layout.block > 1) found.push(`Each cell is the largest magnitude of ${layout.block} neighbours in its row.`);
  if (beyond) found.push(`${groupDigits(beyond)} ${beyond === 1 ? "cell lies" : "cells lie"} beyond the colour bar, which ends at the 99.5th percentile.`);
  if (stage.key === "raw") found.push("All cells, the future too: the mask comes two stages later.");
  if (stage.key === "scaled") found.push("The picture is the one before; the ends of the colour bar have moved.");
  return [...found, ...field.meta.notes];
}

// What tests may ask of the canvas.
function expose(page) {
  const { nodes: { matrix }, field, view, head, layout } = page;
  matrix.valueAt = (row, column) => field.cell(view.stage, head, row, column);
  matrix.placeOf = (row, column) => ({ x: layout.left + (Math.floor(column / layout.block) + 0.5) * layout.cellWidth, y: layout.top + (row + 0.5) * layout.cellHeight });
  matrix.colourAt = (row, column) => {
    const { x, y } = matrix.placeOf(row, column);
    return [...matrix.getContext("2d").getImageData(Math.floor(x * pixelRatio()), Math.floor(y * pixelRatio()), 1, 1).data];
  };
  matrix.limit = field.byKey[view.stage].limit;
}
