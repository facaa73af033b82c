// Square fields side by side with one cell selected in all of them; hatched cells may not be read.

export default function ({ data, parentElement }) {
  const host = parentElement.querySelector(".gb");
  const state = mounted(parentElement, () => ({ query: null, key: null, layer: null, head: null, stops: [] }));
  state.stops.forEach((stop) => stop());
  const field = readFields(unpack(data));
  const last = field.count - 1;
  if (state.query === null || state.query > last || state.key > last) Object.assign(state, { query: last, key: Math.max(0, last - 1) });
  const [layer, head] = field.meta.start;
  const asked = viewFromUrl(["layer", "head"]);
  if (state.layer === null) Object.assign(state, { layer: field.at("layer", asked.layer, layer), head: field.at("head", asked.head, head) });
  const reading = element("div", { class: "note reading", "aria-live": "polite" });
  const boxes = field.meta.fields.map((spec, index) => fieldBox(field, state, index, () => draw()));
  const pictures = () => [boxes.map((box, index) => ({ canvas: box.canvas, caption: field.meta.fields[index].title }))];
  const saves = figureSaves(field.meta.file, pictures, () => fieldRows(field, state), () => look.colours);
  const root = element("div", { class: "fields" }, element("div", { class: "maps" }, boxes.map((box) => box.node)), reading, saves);
  host.replaceChildren(root);

  const look = { colours: themeColours(host), ramp: themeRamp(host), signed: themeRamp(host, "diverging") };
  function draw() {
    for (const box of boxes) box.draw(look);
    reading.replaceChildren(...readingText(field, state));
    root.dataset.state = JSON.stringify({ layer: state.layer, head: state.head, query: state.query, key: state.key });
  }
  root.values = (index) => field.values(index, state);
  draw();
  whenFontsLoad(draw);
  state.stops = [onWidth(root, draw)];
  if (field.meta.by_head)
    for (const name of ["layer", "head"])
      state.stops.push(onView(name, (value) => ((state[name] = field.at(name, value, state[name])), draw())));
  return () => {
    state.stops.forEach((stop) => stop());
    unmount(parentElement);
  };
}

function readFields({ meta, arrays }) {
  const count = meta.tokens.length;
  const cells = count * count;
  const ends = { layer: meta.by_head?.[0] ?? 1, head: meta.by_head?.[1] ?? 1 };
  return {
    meta,
    count,
    labels: meta.tokens.map(flatToken),
    at(name, value, otherwise) {
      const number = Number.parseInt(value, 10);
      return Number.isNaN(number) ? otherwise : Math.max(0, Math.min(ends[name] - 1, number));
    },
    values(index, { layer, head }) {
      const from = arrays[index].data.length > cells ? (layer * ends.head + head) * cells : 0;
      return arrays[index].data.subarray(from, from + cells);
    },
  };
}

function readingText(field, state) {
  const { query, key } = state;
  const token = (position) => element("span", { class: "token plate" }, tokenSpans(field.meta.tokens[position]));
  const parts = [`position ${query} `, token(query), ` reads ${key} `, token(key), ": "];
  field.meta.fields.forEach((spec, index) => {
    const value = field.values(index, state)[query * field.count + key];
    const text = value === -1 ? "may not read" : spec.kind === "mask" ? "may read" : decimals(value, 4);
    parts.push(index ? ", " : "", `${spec.title.toLowerCase()} `, element("b", { class: "number" }, text));
  });
  return field.meta.by_head ? [`layer ${state.layer}, head ${state.head}: `, ...parts] : parts;
}

// A row for each cell, with what every field shows there; a cell that may not be read has no weight.
function fieldRows(field, state) {
  const own = field.meta.by_head ? `, layer ${state.layer}, head ${state.head}` : "";
  const rows = [["query position", "query", "key position", "key", ...field.meta.fields.map(({ title }) => `${title}${own}`)]];
  const values = field.meta.fields.map((_, index) => field.values(index, state));
  for (let query = 0; query < field.count; query++)
    for (let key = 0; key < field.count; key++) {
      const cells = values.map((of, index) => {
        const value = of[query * field.count + key];
        if (field.meta.fields[index].kind === "mask") return value === -1 ? "may not read" : "may read";
        return value === -1 ? null : Number.isFinite(value) ? value : notFinite(value);
      });
      rows.push([query, tokenCell(field.labels[query]), key, tokenCell(field.labels[key]), ...cells]);
    }
  return rows;
}

const BAR_ROOM = 34;

function fieldBox(field, state, index, redraw) {
  const spec = field.meta.fields[index];
  const canvas = element("canvas", { tabindex: 0, role: "application", "aria-roledescription": "map", "data-field": spec.title });
  const pooled = element("div", { class: "note pooled" });
  const node = element("figure", { class: "field" }, element("figcaption", {}, spec.title), canvas, pooled);
  let layout = null;
  let painted = {};
  const choose = (query, key) => {
    const last = field.count - 1;
    Object.assign(state, { query: Math.max(0, Math.min(last, query)), key: Math.max(0, Math.min(last, key)) });
    redraw();
  };
  const point = (event) => {
    const box = canvas.getBoundingClientRect();
    const place = (offset) => Math.floor(offset / layout.size);
    const [query, key] = [place(event.clientY - box.top - layout.top), place(event.clientX - box.left - layout.left)];
    if (query >= 0 && key >= 0 && query < field.count && key < field.count && (query !== state.query || key !== state.key)) choose(query, key);
  };
  canvas.onpointermove = point;
  canvas.onpointerdown = point;
  canvas.onkeydown = (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    choose(state.query + step[0], state.key + step[1]);
  };
  function draw(look) {
    layout = fieldLayout(field, node.clientWidth || 300, index);
    const context = fitCanvas(canvas, layout.width, layout.height);
    const values = field.values(index, state);
    // a move of the selection leaves the cells as they are
    const wanted = [state.layer, state.head, layout.width, pixelRatio()].join();
    if (painted.wanted !== wanted) {
      const largest = () => values.reduce((most, value) => (Number.isFinite(value) && value !== -1 ? Math.max(most, Math.abs(value)) : most), 0);
      painted = { wanted, picture: element("canvas"), top: spec.top ?? largest() };
      drawCells(fitCanvas(painted.picture, layout.width, layout.height), field.count, values, layout, look, spec, painted.top);
    }
    const { top } = painted;
    context.drawImage(painted.picture, 0, 0, layout.width, layout.height);
    drawFieldAxes(context, field, state, layout, look.colours);
    drawFieldBar(context, layout, look, spec, top);
    pooled.textContent = layout.block > 1 ? `Each cell is the largest of ${layout.block} × ${layout.block}; the reading is of one.` : "";
    canvas.setAttribute("aria-label", `${spec.title}, query ${state.query}, key ${state.key}. Arrow keys move.`);
  }
  return { node, canvas, draw };
}

function fieldLayout(field, width, index) {
  const named = field.count <= 26;
  const left = named ? 76 : 40;
  const top = named ? 84 : 28;
  const side = Math.max(48, Math.min(width - left - 4, 44 * field.count));
  const size = side / field.count;
  const block = Math.max(1, Math.ceil(1 / (size * pixelRatio()) - 0.05)); // tokens that share a cell, which is a device pixel at least
  return { named, left, top, side, size, block, width, height: top + side + (field.meta.fields[index].kind === "mask" ? 26 : BAR_ROOM + 12) };
}

// Cells of several tokens show what is not finite, else their largest magnitude, and are hatched where nothing may be read.
function pooledCells(values, count, block) {
  if (block === 1) return { cells: values, across: count };
  const across = Math.ceil(count / block);
  const cells = new Float32Array(across * across).fill(-1);
  for (let query = 0; query < count; query++)
    for (let key = 0; key < count; key++) {
      const value = values[query * count + key];
      const at = Math.floor(query / block) * across + Math.floor(key / block);
      if (value === -1 || Number.isNaN(cells[at])) continue;
      if (cells[at] === -1 || Number.isNaN(value) || Math.abs(value) > Math.abs(cells[at])) cells[at] = value;
    }
  return { cells, across };
}

// Large cells have a gap between them; small ones are one picture, enlarged without smoothing, and what it leaves out in runs.
function drawCells(context, count, values, { left, top, size, block }, look, spec, most) {
  const fills = { hatch: statePattern(context, "hatch", look.colours.rule), cross: statePattern(context, "cross", look.colours.bad), may: look.colours.accentSoft };
  const { cells, across } = pooledCells(values, count, block);
  const kindOf = (value) => (value === -1 ? "hatch" : !Number.isFinite(value) ? "cross" : spec.kind === "mask" ? "may" : "value");
  const shadeOf = spec.kind === "signed" ? (value) => signedIndex(value, most || 1) : (value) => rootIndex(most > 0 ? value / most : 0);
  const ramp = spec.kind === "signed" ? look.signed : look.ramp;
  const side = size * block;
  const gap = side >= 11 ? 1 : 0;
  const image = new ImageData(across, across);
  const pixels = new Uint32Array(image.data.buffer);
  for (let row = 0; row < across; row++)
    for (let column = 0, end; column < across; column = end) {
      const [at, value] = [row * across + column, cells[row * across + column]];
      const kind = kindOf(value);
      end = column + 1;
      if (kind === "value") pixels[at] = ramp.packed[shadeOf(value)];
      else if (!gap) while (end < across && kindOf(cells[row * across + end]) === kind) end++;
      if (kind === "value" && !gap) continue;
      context.fillStyle = fills[kind] ?? ramp.css[shadeOf(value)];
      const inset = kind === "hatch" || kind === "cross" ? 0 : gap;
      context.fillRect(left + column * side, top + row * side, (end - column) * side - inset, side - inset + (kind === "may" && !gap ? 0.4 : 0));
    }
  if (gap) return;
  const small = new OffscreenCanvas(across, across);
  small.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, left, top, across * side, across * side);
}

function drawFieldAxes(context, field, { query, key }, layout, colours) {
  const { left, top, size, side, named } = layout;
  const every = named ? 1 : [4, 8, 16, 32, 64].find((step) => step * size >= 26) ?? 128;
  context.textBaseline = "middle";
  for (let position = 0; position < field.count; position += every) {
    const text = named ? shortLabel(field.labels[position]) : String(position);
    const middle = (position + 0.5) * size;
    const style = (chosen) => {
      context.font = `${chosen ? "500 " : ""}${named ? Math.min(10.5, Math.max(7, size)) : 9.5}px ${colours.mono}`;
      context.fillStyle = chosen ? colours.accent : colours.ink2;
    };
    style(position === query);
    context.textAlign = "right";
    context.fillText(text, left - 6, top + middle);
    context.save();
    context.translate(left + middle, top - 6);
    if (named) context.rotate(-Math.PI / 2);
    style(position === key);
    context.textAlign = named ? "left" : "center";
    context.fillText(text, 0, named ? 0 : -3);
    context.restore();
  }
  context.font = `11.5px ${colours.sans}`;
  context.fillStyle = colours.ink;
  context.textAlign = "left";
  context.fillText("key (is read) →", left, 7);
  context.save();
  context.translate(6, top);
  context.rotate(Math.PI / 2);
  context.fillText("query (reads) →", 0, 0);
  context.restore();
  context.lineWidth = 1;
  context.strokeStyle = colours.accent;
  context.strokeRect(left - 0.5, top + query * size - 0.5, side, size);
  context.strokeRect(left + key * size - 0.5, top - 0.5, size, side);
  context.lineWidth = 2;
  context.strokeStyle = colours.ink;
  context.strokeRect(left + key * size - 1, top + query * size - 1, size + 1, size + 1);
}

const shortLabel = (text) => ([...text].length > 8 ? `${[...text].slice(0, 7).join("")}…` : text);

// The colour follows the square root (or is linear about zero); the ticks carry the true values.
function drawFieldBar(context, { left, top, side }, look, spec, most) {
  const y = top + side + 12;
  context.font = `11px ${look.colours.sans}`;
  context.textBaseline = "top";
  if (spec.kind === "mask") {
    context.fillStyle = look.colours.accentSoft;
    context.fillRect(left, y, 12, 10);
    context.fillStyle = statePattern(context, "hatch", look.colours.rule);
    context.fillRect(left + 84, y, 12, 10);
    context.fillStyle = look.colours.ink2;
    context.textAlign = "left";
    context.fillText("may read", left + 18, y);
    context.fillText("may not read", left + 102, y);
    return;
  }
  const ramp = spec.kind === "signed" ? look.signed : look.ramp;
  for (let x = 0; x < side; x++) {
    context.fillStyle = ramp.css[Math.round((255 * x) / Math.max(1, side - 1))];
    context.fillRect(left + x, y, 1.4, 8);
  }
  context.fillStyle = look.colours.ink2;
  const ticks = spec.kind === "signed" ? [[0, -most], [0.5, 0], [1, most]] : [[0, 0], [0.3162, 0.1 * most], [0.7071, 0.5 * most], [1, most]];
  for (const [share, value] of ticks) {
    context.textAlign = share === 0 ? "left" : share === 1 ? "right" : "center";
    context.fillText(value === 0 ? "0" : tickText(value), left + share * side, y + 12);
  }
  context.textAlign = "right";
  if (left >= 70) context.fillText(spec.unit, left - 6, y - 1);
}

const tickText = (value) => (Math.abs(value) < 0.001 ? scientific(value, 0) : withMinus(String(Number(value.toPrecision(2)))));
