// The architecture of the loaded model, drawn from its config, over a measured trace of one forward pass.

const ARCH_WIDE = 720;
const SOFT_OPEN_MS = 1500;

export default function ({ data, parentElement, setTriggerValue }) {
  const host = parentElement.querySelector(".gb");
  const { meta, arrays } = unpack(data);
  const norms = arrays[0];
  const state = mounted(parentElement, () => ({ position: fromUrl(meta.url), block: null, stop: null, timer: null }));
  state.stop?.();
  const measure = textMeasure(host);

  // Within the running session if the page takes the message, by loading the address if it does not.
  const open = (page, address) => {
    setTriggerValue("page", page);
    clearTimeout(state.timer);
    state.timer = setTimeout(() => window.location.assign(address), SOFT_OPEN_MS);
  };
  const links = pageLinks(open);
  const diagram = element("div", { class: "diagram" });
  const trace = element("div", { class: "trace-area" });
  const shares = element("div", { class: "shares-area" });
  const picture = (area, caption) => ({ canvas: svgPicture(area.querySelector("svg")), caption });
  const path = () => [picture(diagram, ""), picture(trace, "Length of the residual vector, log scale")];
  const colours = () => themeColours(host);
  const saveLengths = figureSaves("forward-path", path, () => lengthRows(meta, norms), colours);
  const saveShares = figureSaves("parameters", () => [picture(shares, "Where the parameters are")], () => shareRows(meta.shares), colours);
  host.replaceChildren(diagram, trace, saveLengths, shares, saveShares);

  const last = norms.shape[1] - 1;
  const shownIndex = () => {
    const asked = state.position == null ? -1 : meta.positions.indexOf(state.position);
    return asked < 0 ? Math.max(0, last) : asked;
  };

  function drawTrace(width, place) {
    const view = { index: shownIndex(), block: state.block };
    const reading = element("div", { class: "note reading", "aria-live": "polite" });
    const read = (block) => {
      state.block = block;
      reading.replaceChildren(...traceReading(meta, norms, view.index, block));
    };
    const figure = element("div", { class: "trace-figure" });
    const redraw = () => figure.replaceChildren(traceFigure(meta, norms, width, place, view, read));
    redraw();
    read(state.block);
    const move = (index) => {
      view.index = index;
      if (state.position === meta.positions[index]) return;
      state.position = meta.positions[index];
      if (meta.url) viewToUrl({ [meta.url]: state.position });
      redraw();
      read(state.block);
    };
    trace.replaceChildren(traceTitle(meta, last, view, move), figure, reading);
    trace.classList.toggle("beside", place.from >= 170);
    trace.style.setProperty("--title-width", `${place.from - 62}px`);
  }

  function draw() {
    const width = Math.floor(host.clientWidth);
    if (!width) return;
    const wide = width >= ARCH_WIDE ? wideDiagram(meta, width, measure, links) : null;
    diagram.replaceChildren(wide ? wide.svg : tallDiagram(meta, Math.min(width, 460), measure, links));
    drawTrace(width, wide ?? { from: TRACE.left, to: width - (width > 520 ? TRACE.right : 8) });
    shares.replaceChildren(
      element("div", { class: "caption" }, "Where the parameters are"),
      sharesFigure(meta.shares, width, measure),
    );
  }

  // Another component of the page chose the position.
  function follow(position) {
    state.position = position;
    draw();
  }

  draw();
  whenFontsLoad(draw);
  const stops = [onWidth(host, draw)];
  if (meta.url) stops.push(onView(meta.url, (position) => position !== state.position && follow(position)));
  state.stop = () => stops.forEach((stop) => stop());
  return () => {
    state.stop();
    clearTimeout(state.timer);
    unmount(parentElement);
  };
}

function fromUrl(name) {
  const position = name ? Number.parseInt(viewFromUrl([name])[name], 10) : NaN;
  return Number.isInteger(position) ? position : null;
}

// The name of the trace and, for a prompt of several tokens, the control that chooses the position.
function traceTitle(meta, last, view, move) {
  const title = element(
    "div",
    { class: "trace-title" },
    element("div", { class: "trace-name" }, "Length of the residual vector"),
    element("div", { class: "note" }, "measured, log scale"),
  );
  if (last < 1) return title;
  const token = element("span", { class: "token" });
  const place = element("b", { class: "number" });
  const range = element("input", {
    type: "range",
    min: 0,
    max: last,
    step: 1,
    "aria-label": "position of the measured trace",
  });
  range.value = view.index;
  const say = () => {
    const position = meta.positions[view.index];
    place.textContent = String(position);
    token.replaceChildren(...tokenSpans(meta.pieces[position] ?? []));
    range.setAttribute("aria-valuetext", `position ${position}`);
  };
  range.oninput = () => {
    move(Number(range.value));
    say();
  };
  say();
  title.append(
    element(
      "label",
      { class: "trace-position" },
      element("span", { class: "note" }, "position ", place, " ", token),
      range,
    ),
  );
  return title;
}

// "After block 12: 160 at position 19, 21 880 at position 0."
function traceReading(meta, norms, index, block) {
  const count = norms.shape[1];
  if (!count) return [];
  const number = (value) => element("b", { class: "number" }, lengthText(value));
  const at = (row, column) => norms.data[row * count + column];
  const row = block ?? meta.layers;
  const where = row ? `After block ${row}` : "After the embedding";
  const parts = [where, ": ", number(at(row, index)), ` at position ${meta.positions[index]}`];
  return index ? [...parts, ", ", number(at(row, 0)), " at position 0."] : [...parts, "."];
}

// A row for the embedding and for each block, a column for each position.
function lengthRows({ positions }, norms) {
  const count = norms.shape[1];
  const row = (block) => [block, ...norms.data.subarray(block * count, (block + 1) * count)];
  return [["after block", ...positions.map((position) => `position ${position}`)], ...Array.from({ length: norms.shape[0] }, (_, block) => row(block))];
}

const shareRows = (shares) => [["part", "calculated", "counted"], ...shares.map(({ name, calculated, counted }) => [name, calculated, counted])];
