// A number for every head as a grid, layers down and heads across, and the largest of them in a list. A click selects the head.

export default function ({ data, parentElement }) {
  const host = parentElement.querySelector(".gb");
  const { meta, arrays } = unpack(data);
  const asked = viewFromUrl(["layer", "head"]);
  const number = (value, otherwise) => (Number.isNaN(Number.parseInt(value, 10)) ? otherwise : Number.parseInt(value, 10));
  const state = mounted(parentElement, () => ({ layer: number(asked.layer, meta.start[0]), head: number(asked.head, meta.start[1]), stops: [] }));
  state.stops.forEach((stop) => stop());
  const select = (layer, head) => viewToUrl({ layer, head });
  const panels = meta.panels.map((panel, index) => rankedPanel(panel, arrays[index], state, select));
  const root = element("div", { class: panels.length > 1 ? "ranked several" : "ranked" }, panels.map((panel) => panel.node));
  host.replaceChildren(root);

  function draw() {
    const look = { colours: themeColours(host), root: themeRamp(host), signed: themeRamp(host, "diverging") };
    for (const panel of panels) panel.draw(look);
  }
  draw();
  whenFontsLoad(draw);
  const follow = (name) => onView(name, (value) => ((state[name] = number(value, state[name])), draw()));
  state.stops = [onWidth(root, draw), follow("layer"), follow("head")];
  return () => {
    state.stops.forEach((stop) => stop());
    unmount(parentElement);
  };
}

const RANKED_LEFT = 34;
const RANKED_TOP = 22;
const EXTRA_GAP = 8;

function rankedPanel(panel, array, state, select) {
  const [layers, columns] = array.shape;
  const heads = panel.extra ? columns - 1 : columns;
  const canvas = element("canvas", { tabindex: 0, role: "application", "aria-roledescription": "all heads" });
  const reading = element("div", { class: "note reading", "aria-live": "polite" });
  const at = { layer: null, head: null };
  let layout = null;
  let look = null;
  const named = (layer, head) => (head < heads ? `layer ${layer}, head ${head}` : `layer ${layer}, ${panel.extra}`);
  const say = () => {
    const [layer, head] = at.layer === null ? [state.layer, state.head] : [at.layer, at.head];
    if (layer < layers && head < columns) reading.replaceChildren(`${named(layer, head)}: `, element("b", { class: "number" }, decimals(array.data[layer * columns + head], 4)));
  };
  const cellOf = (event) => {
    const box = canvas.getBoundingClientRect();
    const layer = Math.floor((event.clientY - box.top - RANKED_TOP) / layout.cell);
    const x = event.clientX - box.left - RANKED_LEFT;
    const head = x >= heads * layout.cell ? (panel.extra && x >= heads * layout.cell + EXTRA_GAP ? heads : -1) : Math.floor(x / layout.cell);
    return layer >= 0 && layer < layers && head >= 0 && head < columns ? { layer, head } : null;
  };
  canvas.onpointermove = (event) => (Object.assign(at, cellOf(event) ?? { layer: null, head: null }), say());
  canvas.onpointerleave = () => (Object.assign(at, { layer: null, head: null }), say());
  canvas.onclick = (event) => {
    const cell = cellOf(event);
    if (cell && cell.head < heads) select(cell.layer, cell.head);
  };
  canvas.onkeydown = (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const clamp = (value, end) => Math.max(0, Math.min(end - 1, value));
    select(clamp(state.layer + step[0], layers), clamp(state.head + step[1], heads));
  };
  // a row for each cell of the grid: the last column, where there is one, has no head but a name
  const gridRows = () => [["layer", "head", panel.title], ...Array.from(array.data, (value, at) => [Math.floor(at / columns), at % columns < heads ? at % columns : panel.extra, Number.isFinite(value) ? value : notFinite(value)])];
  const list = element("div", { class: "list", role: "list" }, panel.beside ? element("div", { class: "entry head" }, element("span"), element("span"), element("span", {}, "planted"), element("span", {}, panel.beside)) : null);
  const rows = panel.entries.map((entry) => {
    const bar = element("i");
    const cells = [element("span", { class: "name" }, entry.name), element("span", { class: panel.kind === "signed" ? "track signed" : "track" }, bar), element("span", { class: "number" }, entry.text), panel.beside ? element("span", { class: "number beside" }, entry.beside || "–") : null];
    const clickable = entry.head !== null && entry.head < heads;
    const row = clickable ? element("button", { type: "button", class: "entry", onclick: () => select(entry.layer, entry.head) }, cells) : element("div", { class: "entry" }, cells);
    list.append(element("div", { role: "listitem" }, row));
    return { entry, bar, row };
  });
  for (const [mark, name, text] of panel.totals)
    list.append(element("div", { class: "entry total", role: "listitem" }, element("span", { class: "name" }, mark ? element("i", { class: `mark ${mark}`, "aria-hidden": "true" }, mark === "delta" ? "Δ" : null) : null, name), element("span"), element("span", { class: "number" }, text)));
  const node = element(
    "section",
    { class: panel.beside ? "panel paired" : "panel" },
    element("h3", {}, panel.title),
    element("p", { class: "note" }, panel.definition),
    element("div", { class: "sides" }, element("div", { class: "grid" }, canvas, reading), list),
    figureSaves(fileName(panel.title), () => [canvas], gridRows, () => look.colours, { title: () => panel.title }),
  );

  function draw(next) {
    look = next;
    const ramp = panel.kind === "signed" ? look.signed : look.root;
    const index = (value, top) => (panel.kind === "signed" ? signedIndex(Math.sign(value) * Math.sqrt(Math.abs(value) / (top || 1)), 1) : rootIndex(value / top));
    const width = canvas.parentElement.clientWidth || 280;
    const cell = Math.max(5, Math.min(22, Math.floor((width - RANKED_LEFT - 4 - (panel.extra ? EXTRA_GAP : 0)) / columns)));
    layout = { cell };
    const context = fitCanvas(canvas, width, RANKED_TOP + layers * cell + 42);
    const x = (head) => RANKED_LEFT + head * cell + (panel.extra && head >= heads ? EXTRA_GAP : 0);
    const gap = cell >= 9 ? 1 : 0;
    const cross = statePattern(context, "cross", look.colours.bad);
    for (let layer = 0; layer < layers; layer++)
      for (let head = 0; head < columns; head++) {
        const value = array.data[layer * columns + head];
        context.fillStyle = Number.isFinite(value) ? ramp.css[index(value, panel.top)] : cross;
        context.fillRect(x(head), RANKED_TOP + layer * cell, cell - gap, cell - gap);
      }
    drawRankedAxes(context, look.colours, state, { layers, heads, columns, cell, x, extra: panel.extra });
    drawRankedBar(context, look.colours, ramp, panel, RANKED_TOP + layers * cell + 10, x(columns - 1) + cell - RANKED_LEFT);
    const most = panel.kind === "signed" ? Math.max(...panel.entries.map((entry) => Math.abs(entry.value)), 1e-12) : 1;
    for (const { entry, bar, row } of rows) {
      const share = Math.min(1, Math.abs(entry.value) / most) * (panel.kind === "signed" ? 50 : 100);
      const side = panel.kind === "signed" ? (entry.value < 0 ? 50 - share : 50) : 0;
      bar.style.cssText = `left:${side}%;width:${share}%;right:auto;background:${ramp.css[index(entry.value, panel.top)]}`;
      row.setAttribute("aria-current", String(entry.layer === state.layer && entry.head === state.head));
    }
    canvas.setAttribute("aria-label", `${panel.title}: layer ${state.layer}, head ${state.head} is selected. Arrow keys move.`);
    say();
  }
  return { node, draw };
}

function drawRankedAxes(context, colours, { layer, head }, { layers, heads, columns, cell, x, extra }) {
  context.font = `10.5px ${colours.sans}`;
  context.textBaseline = "middle";
  const every = Math.max(1, Math.ceil(12 / cell) * (layers > 12 ? 5 : 1));
  context.textAlign = "right";
  for (let at = 0; at < layers; at++) {
    if (at !== layer && (at % every !== 0 || Math.abs(at - layer) * cell < 12)) continue;
    context.fillStyle = at === layer ? colours.accent : colours.ink3;
    context.fillText(String(at), RANKED_LEFT - 6, RANKED_TOP + (at + 0.5) * cell);
  }
  context.textAlign = "center";
  const across = Math.max(1, Math.ceil(18 / cell));
  for (let at = 0; at < heads; at += across) {
    context.fillStyle = colours.ink3;
    context.fillText(String(at), x(at) + cell / 2, RANKED_TOP - 8);
  }
  context.fillStyle = colours.ink2;
  if (extra) context.fillText(extra, x(columns - 1) + cell / 2, RANKED_TOP - 8);
  context.textAlign = "left";
  context.fillStyle = colours.ink3;
  context.fillText("layer", 0, RANKED_TOP - 8);
  if (layer >= layers || head >= heads) return;
  context.lineWidth = 2;
  context.strokeStyle = colours.accent;
  context.strokeRect(x(head) - 1, RANKED_TOP + layer * cell - 1, cell + 1, cell + 1);
}

function drawRankedBar(context, colours, ramp, panel, y, width) {
  const side = Math.max(width, 150);
  for (let at = 0; at < side; at++) {
    context.fillStyle = ramp.css[Math.round((255 * at) / (side - 1))];
    context.fillRect(RANKED_LEFT + at, y, 1.4, 8);
  }
  context.fillStyle = colours.ink2;
  context.textBaseline = "top";
  const ends = Number(panel.top.toPrecision(3));
  const ticks = panel.kind === "signed" ? [[0, -ends], [0.25, -ends / 4], [0.5, 0], [0.75, ends / 4], [1, ends]] : [[0, 0], [0.3162, 0.1], [0.7071, 0.5], [1, 1]];
  for (const [share, value] of ticks) {
    context.textAlign = share === 0 ? "left" : share === 1 ? "right" : "center";
    context.fillText(withMinus(String(Number(value.toPrecision(2)))), RANKED_LEFT + share * side, y + 12);
  }
}
