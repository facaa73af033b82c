// One attention head from its normed input to the residual add, one matrix in place of the other. Moving among stages, heads of the
// group, rows and cells happens here; Python hears only of what the payload does not hold, and only once this can be seen.

const PLAY_MS = 600;
const ASK_AFTER_MS = 250;
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-10, 0], PageDown: [10, 0] };
const GROUP = "group";

export default function ({ data, parentElement, setStateValue }) {
  const host = parentElement.querySelector(".gb");
  const page = mounted(parentElement, () => buildPage(host));
  if (!host.contains(page.root)) host.replaceChildren(page.root);
  page.ask = (wanted) => setStateValue("wanted", wanted);
  load(page, data);
  return () => {
    page.stop();
    unmount(parentElement);
  };
}

function buildPage(host) {
  const nodes = {
    previous: element("button", { type: "button", class: "step", "aria-label": "Stage before" }, "←"),
    play: element("button", { type: "button", class: "step play" }, "Play"),
    next: element("button", { type: "button", class: "step", "aria-label": "Next stage" }, "→"),
    stages: element("div", { class: "button-row stage-row", role: "group", "aria-label": "stages" }),
    layer: element("select", { "aria-label": "layer of the stages" }),
    head: element("select", { "aria-label": "head of the stages" }),
    group: element("div", { class: "group" }),
    title: element("h3", {}),
    shape: element("span", { class: "note shape" }),
    formula: element("div", { class: "formula" }),
    hover: element("span", { class: "note hover" }),
    matrix: element("canvas", { class: "matrix", tabindex: 0, role: "application", "aria-roledescription": "matrix" }),
    bar: element("canvas", { class: "bar", role: "img" }),
    panels: element("div", { class: "panels" }),
    notes: element("div", { class: "note notes" }),
    made: element("div", { class: "made" }),
    said: element("div", { class: "unseen", "aria-live": "polite" }),
    text: element("ol", { class: "text", tabindex: 0 }),
    save: element("div"),
    saveText: element("div"),
  };
  nodes.stepper = element("div", { class: "stepper" }, element("div", { class: "steps" }, nodes.previous, nodes.play, nodes.next), nodes.stages);
  nodes.box = element("div", { class: "matrix-box" }, nodes.matrix, nodes.bar);
  nodes.main = element("div", { class: "main" },
    element("div", { class: "title" }, nodes.title, nodes.shape), nodes.formula, nodes.hover, nodes.panels, nodes.box, nodes.notes, nodes.save);
  const labelled = (text, node) => element("label", {}, element("span", { class: "caption" }, text), node);
  const root = element("div", { class: "stages" },
    element("div", { class: "choose" }, labelled("Layer", nodes.layer), labelled("Head", nodes.head), nodes.group),
    nodes.stepper, nodes.main,
    element("div", { class: "side" }, nodes.made,
      element("div", { class: "read" }, element("div", { class: "caption" }, "Read as text"), nodes.text, nodes.saveText)),
    nodes.said);
  const page = { host, root, nodes, view: null, field: null, head: 0, pointed: null, asked: "", seen: false, playing: 0, asking: 0, ask: () => {} };
  const pen = element("canvas").getContext("2d");
  page.measure = (texts, size) => {
    pen.font = `500 ${size}px ${page.colours.mono}`;
    return Math.max(...texts.map((text) => pen.measureText(text).width));
  };
  const observer = new IntersectionObserver(([entry]) => {
    page.seen = entry.isIntersecting;
    if (page.seen && page.field) askIfAbsent(page);
  });
  observer.observe(root);
  const stops = [onWidth(root, () => page.field && draw(page)), () => observer.disconnect(), () => pause(page), () => window.clearTimeout(page.asking)];
  for (const name of ["layer", "head", "query", "key"]) stops.push(onView(name, (value) => hear(page, name, Number(value))));
  page.stop = () => stops.forEach((stop) => stop());
  listen(page);
  addSaves(page);
  return page;
}

// Another component of the page moved: follow it, once for all that it says.
function hear(page, name, value) {
  if (!page.field || page.view[name] === value || !Number.isInteger(value)) return;
  page.view = validView(page.field, { ...page.view, [name]: value });
  window.cancelAnimationFrame(page.frame);
  page.frame = window.requestAnimationFrame(() => page.field && draw(page));
  askIfAbsent(page);
}

function load(page, data) {
  page.colours = themeColours(page.host);
  page.ramps = { signed: themeRamp(page.host, "diverging"), weight: themeRamp(page.host) };
  if (page.data !== data) {
    page.data = data;
    page.field = readStages(unpack(data));
    page.view = startView(page);
    page.pointed = null;
    buildControls(page);
  }
  draw(page);
  askIfAbsent(page);
  whenFontsLoad(() => page.field && draw(page));
}

// At first the payload's view and over it the address; afterwards where the reader is, unless another prompt begins elsewhere.
function startView(page) {
  const given = { stage: "normed", show: "one", dim: null, wide: null, ...page.field.meta.view };
  const chosen = viewFromUrl(["layer", "head", "query", "key", "stage", "show"]);
  return validView(page.field, { ...given, ...(page.view ?? {}), ...chosen });
}

function validView(field, view) {
  const within = (value, end, otherwise) => {
    const number = Number.parseInt(value, 10);
    return Number.isNaN(number) ? otherwise : Math.max(0, Math.min(end - 1, number));
  };
  const { meta } = field;
  return {
    ...view,
    layer: within(view.layer, meta.layers, meta.layer),
    head: within(view.head, meta.n_heads, meta.first_head),
    query: within(view.query, field.tokens, field.tokens - 1),
    key: within(view.key, field.tokens, 0),
    stage: field.byKey[view.stage] ? view.stage : field.stages[0].key,
    show: view.show === GROUP && meta.heads > 1 ? GROUP : "one",
  };
}

function change(page, difference) {
  page.view = validView(page.field, { ...page.view, ...difference });
  const { layer, head, query, key, stage, show } = page.view;
  page.pointed = null;
  draw(page);
  viewToUrl({ layer, head, query, key, stage: stage === "normed" ? null : stage, show: show === GROUP ? show : null });
  askIfAbsent(page);
}

const held = ({ field, view }) => field.holdsHead(view.layer, view.head) && field.rowOf(view.query) !== undefined;

// Asks Python for what the payload does not hold, when nothing has moved for a moment and the section can be seen.
function askIfAbsent(page) {
  window.clearTimeout(page.asking);
  if (held(page)) page.asked = "";
  else if (page.seen)
    page.asking = window.setTimeout(() => {
      const { layer, head, query } = page.view;
      const wanted = [layer, head, query].join();
      if (held(page) || wanted === page.asked) return;
      page.asked = wanted;
      page.ask({ layer, head, query });
    }, ASK_AFTER_MS);
}

// ---- Steps -----------------------------------------------------------------------------------------------------------

function step(page, by) {
  const index = page.field.stages.findIndex(({ key }) => key === page.view.stage);
  const next = Math.max(0, Math.min(page.field.stages.length - 1, index + by));
  if (next !== index) change(page, { stage: page.field.stages[next].key });
  return next;
}

function pause(page) {
  window.clearInterval(page.playing);
  page.playing = 0;
  page.nodes.play.textContent = "Play";
}

function play(page) {
  if (page.playing) return pause(page);
  const last = page.field.stages.length - 1;
  if (page.view.stage === page.field.stages[last].key) change(page, { stage: page.field.stages[0].key });
  page.nodes.play.textContent = "Pause";
  page.playing = window.setInterval(() => step(page, 1) >= last && pause(page), PLAY_MS);
}

function buildControls(page) {
  const { nodes, field } = page;
  nodes.stages.replaceChildren(...field.stages.map(({ key, short, title }) =>
    element("button", { type: "button", "data-stage": key, title, onclick: () => (pause(page), change(page, { stage: key })) }, formulaParts(short))));
  const options = (count) => Array.from({ length: count }, (_, index) => element("option", { value: index }, String(index)));
  nodes.layer.replaceChildren(...options(field.meta.layers));
  nodes.head.replaceChildren(...options(field.meta.n_heads));
  const { heads, first_head: first, group_size: size } = field.meta;
  const choices = [...Array.from({ length: heads }, (_, index) => [String(first + index), `head ${first + index}`]), [GROUP, "side by side"]];
  const kv = Math.floor(first / size);
  nodes.group.replaceChildren(
    element("span", { class: "caption" }, heads > 1 ? `KV head ${kv} is shared by` : `KV head ${kv}, of this head alone`),
    ...(heads > 1 ? [buttonRow("heads of this KV head", choices, "", (choice) => change(page, choice === GROUP ? { show: GROUP } : { head: Number(choice), show: "one" }))] : []),
  );
}

// ---- Pointer and keys --------------------------------------------------------------------------------------------------

function listen(page) {
  const { nodes } = page;
  nodes.previous.onclick = () => (pause(page), step(page, -1));
  nodes.next.onclick = () => (pause(page), step(page, 1));
  nodes.play.onclick = () => play(page);
  nodes.layer.onchange = () => change(page, { layer: Number(nodes.layer.value) });
  nodes.head.onchange = () => change(page, { head: Number(nodes.head.value) });
  nodes.stepper.onkeydown = (event) => {
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -page.field.stages.length, End: page.field.stages.length };
    if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const onStage = page.root.getRootNode().activeElement?.dataset?.stage;
    pause(page);
    step(page, moves[event.key]);
    if (onStage) nodes.stages.querySelector(`[data-stage="${page.view.stage}"]`).focus({ preventScroll: true });
  };
  const under = (event) => cellUnder(page.field, page.view.stage, page.head, page.layout, event.offsetX, event.offsetY);
  nodes.matrix.onmousemove = (event) => point(page, under(event));
  nodes.matrix.onmouseleave = () => point(page, null);
  nodes.matrix.onclick = (event) => choose(page, under(event));
  nodes.matrix.onkeydown = (event) => {
    if (!(event.key in ARROWS) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const [down, right] = ARROWS[event.key];
    const { row, column } = page.cell;
    const clamp = (index, end) => Math.max(0, Math.min(end - 1, index));
    choose(page, { row: clamp(row + down, page.field.rows), column: clamp(column + right * page.layout.block, page.field.columns(page.view.stage)) });
    revealCell(page);
  };
}

function point(page, cell) {
  const was = page.pointed;
  if (cell?.row === was?.row && cell?.column === was?.column) return;
  page.pointed = cell;
  const { row, column } = cell ?? page.cell;
  drawMade(page, row, column);
  page.nodes.hover.textContent = cell ? cellText(page, row, column) : "";
}

// A click on a row follows its token: as a query, or as a key in a stage whose rows are keys.
function choose(page, cell) {
  if (!cell) return;
  const { field, view } = page;
  const stage = field.byKey[view.stage];
  const position = field.positions[cell.row];
  const difference = stage.rows === "key" ? { key: position } : { query: position };
  if (stage.columns === "key") difference.key = field.positions[cell.column];
  else difference[stage.columns === "model" ? "wide" : "dim"] = cell.column;
  change(page, difference);
}

function cellText({ field, view, head }, row, column) {
  const stage = field.byKey[view.stage];
  const { state, value } = field.cell(stage.key, head, row, column);
  const shown = state === MASKED ? "masked" : state === NOT_FINITE ? notFinite(value) : exact(value);
  const where = stage.columns === "key" ? `reads ${shortened(field.label(column), 16)}` : `dim ${stage.columns === "model" ? field.dimOf(stage.key, head, row, column) : column}`;
  return `${shortened(field.label(row), 16)} ${where}: ${shown}`;
}
