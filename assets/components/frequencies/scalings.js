// Seven scalings side by side under every parameter they have, and the one that is applied to the loaded model.

const CURVES = [
  ["divisors", "divided by"],
  ["wavelength", "wavelength"],
  ["angle", "angle at m"],
  ["frequency", "frequency"],
];

function scalingsFigure(host, meta, state, send) {
  const { urls, parameters } = meta;
  const pairs = meta.rope.rotary_dim / 2;
  const known = meta.methods.map(([key]) => key);
  state.settings ??= Object.fromEntries(parameters.map((p) => [p.key, numberFromUrl(state.view[urls[p.key]], p.low, p.high, null)]));
  state.method ??= known.includes(state.view[urls.method]) ? state.view[urls.method] : "yarn";
  state.curve ??= CURVES.some(([key]) => key === state.view[urls.curve]) ? state.view[urls.curve] : "divisors";
  state.position ??= numberFromUrl(state.view[urls.position], 1, 2 ** 20, null);
  state.pair ??= numberFromUrl(state.view[urls.pair], 0, pairs - 1, pairs - 1);
  state.pair = Math.min(pairs - 1, Math.round(state.pair));
  const colours = themeColours(host);
  const series = seriesColours(host);
  const settings = () => Object.fromEntries(parameters.map((p) => [p.key, state.settings[p.key] ?? p.default]));
  const position = () => Math.round(state.position ?? settings().length);

  const ranges = parameters.map((parameter) => {
    const write = (value) => (parameter.whole ? groupDigits(value) : significant(value));
    return [parameter, labelledRange({ ...parameter, write, hear: (value) => setSetting(parameter, value) })];
  });
  const positionRange = labelledRange({
    name: "Position m",
    low: 1,
    high: 2 ** 20,
    log: true,
    whole: true,
    write: groupDigits,
    hear: (value) => {
      state.position = value;
      viewToUrl({ [urls.position]: value });
      draw();
    },
  });
  positionRange.node.classList.add("position-range");
  const back = element("button", { type: "button", class: "save-button", onclick: resetSettings }, "All sliders as this model has them");
  const modes = element("div", { class: "modes" });
  const canvas = element("canvas", { role: "img", tabindex: 0, "aria-label": "the scalings by pair; arrow keys choose a pair" });
  const reading = element("div", { class: "note reading", "aria-live": "polite" });
  const table = element("table");
  const apply = element("div", { class: "apply" });
  const saves = figureSaves("rope-scalings", () => [canvas], rows, colours);
  host.replaceChildren(
    element(
      "div",
      { class: "frequencies scalings" },
      modes,
      positionRange.node,
      canvas,
      reading,
      element("div", { class: "sliders" }, ranges.map(([, range]) => range.node)),
      back,
      table,
      apply,
      saves,
    ),
  );
  const figure = host.querySelector(".frequencies");
  figure.read = () => ({ settings: settings(), methods: all.map(({ key, theta, factor }) => ({ key, theta: Array.from(theta), factor })) });
  figure.frequenciesOf = (rope, length) => {
    const { theta, factor } = ropeFrequencies(rope, length);
    return { theta: Array.from(theta), factor };
  };
  figure.scaledOf = (method, given, rope) => scaledRope(method, given, rope);
  let all = [];
  let plot = null;

  function setSetting(parameter, value) {
    state.settings[parameter.key] = value === parameter.default ? null : value;
    viewToUrl({ [urls[parameter.key]]: state.settings[parameter.key] });
    draw();
  }

  function resetSettings() {
    for (const { key } of parameters) state.settings[key] = null;
    viewToUrl(Object.fromEntries(parameters.map(({ key }) => [urls[key], null])));
    draw();
  }

  function chooseMethod(method) {
    state.method = method === "own" ? "none" : method;
    viewToUrl({ [urls.method]: state.method });
    draw();
  }

  function chooseCurve(curve) {
    state.curve = curve;
    viewToUrl({ [urls.curve]: curve === "divisors" ? null : curve });
    draw();
  }

  // What Python gets is the method and every setting; "" takes it back.
  function applyMethod(method) {
    state.sent = JSON.stringify({ method, ...settings() });
    viewToUrl({ [urls.applied]: method || null, [urls.method]: state.method }, () => send("applied", { method, ...settings() }));
  }

  const value = (one, i) =>
    ({ divisors: one.divisors[i], wavelength: wavelength(one.theta[i]), frequency: one.theta[i], angle: (position() * one.theta[i]) / (2 * Math.PI) })[state.curve];

  function rows() {
    const head = ["method", "pair", "theta", "divided by", "wavelength in tokens", "factor on cos and sin"];
    return [head, ...all.flatMap((one) => Array.from(one.theta, (theta, i) => [one.name, i, theta, one.divisors[i], wavelength(theta), one.factor]))];
  }

  const draw = (pair) => keepingFocus(host, () => drawNow(pair));

  function drawNow(pair = state.pair) {
    if (Number.isInteger(pair) && pair >= 0) state.pair = Math.min(pairs - 1, pair);
    const width = host.clientWidth;
    if (!width) return;
    const now = settings();
    all = scaledAll(meta, now);
    for (const [parameter, range] of ranges) range.show(now[parameter.key]);
    positionRange.show(position());
    positionRange.node.hidden = state.curve !== "angle";
    back.disabled = parameters.every(({ key }) => state.settings[key] === null);
    modes.replaceChildren(buttonRow("What is drawn for each pair", CURVES, state.curve, chooseCurve));
    const lines = all.map((one, k) => ({ ...scalingLook(one, k, meta, series, colours, one.key === state.method), xs: Array.from(one.theta.keys()), ys: Array.from(one.theta.keys(), (i) => value(one, i)) }));
    lines.sort((a, b) => a.width - b.width);
    plot = drawScalings(canvas, width, { lines, curve: state.curve, pair: state.pair, settings: now, position: position() }, colours);
    reading.replaceChildren(...scalingReading(all.find(({ key }) => key === state.method), state.pair, pairs));
    table.replaceChildren(...scalingTable(all, meta, state, now, series, colours, chooseMethod));
    apply.replaceChildren(...applyButtons(meta, state, now, applyMethod));
  }

  listenToPairs(canvas, () => plot, pairs, () => state.pair, (pair) => viewToUrl({ [urls.pair]: pair }));
  draw();
  return draw;
}

// A method keeps its colour and dash; "none" and the model's own are in ink.
function scalingLook({ key, name }, index, meta, series, colours, chosen) {
  const width = chosen ? 3 : 1.5;
  if (key === "own") return { name, colour: colours.ink, width, dash: "dash" };
  if (key === "none") return { name, colour: colours.ink3, width, dash: "solid" };
  const place = meta.methods.findIndex(([method]) => method === key) - 1;
  return { name, colour: series[place % series.length], width, dash: place < 4 ? "solid" : "dash" };
}

function drawScalings(canvas, width, { lines, curve, pair, settings, position }, colours) {
  const values = lines.flatMap((line) => line.ys).filter((value) => Number.isFinite(value) && value > 0);
  let [low, high] = [Math.min(...values), Math.max(...values)];
  const limits = [];
  const [original, length] = [Math.round(settings.original), Math.round(settings.length)];
  if (curve === "divisors") limits.push({ y: settings.factor, label: `s = ${significant(settings.factor)}` });
  if (curve === "wavelength") limits.push({ y: original, label: `original context L, ${groupDigits(original)}` });
  if (curve === "wavelength" && length !== original) limits.push({ y: length, label: `length now l, ${groupDigits(length)}` });
  if (curve === "angle") limits.push({ y: 1, label: "one whole turn" });
  for (const { y } of limits) [low, high] = [Math.min(low, y), Math.max(high, y)];
  const title = {
    divisors: "what each frequency is divided by, θᵢ / θ′ᵢ (log scale)",
    wavelength: "wavelength 2π/θ′, tokens (log scale)",
    angle: `angle mθ′ᵢ at m = ${groupDigits(position)}, in turns (log scale)`,
    frequency: "frequency θ′ᵢ, radians a token (log scale)",
  }[curve];
  const text = curve === "wavelength" || curve === "frequency" ? null : (value) => significant(value, 2);
  const y = plotAxis(low / 1.15, high * 1.15, { log: true, most: 6, text });
  if (curve === "divisors") y.ticks = doublingTicks(high);
  return drawPlot(canvas, width, width > 760 ? 400 : 340, { x: pairTicks(lines[0].xs.length), y, xTitle: "pair i →", yTitle: title, lines, limits, verticals: [{ x: pair }] }, colours);
}

// 1, 2, 4, 8 .. up to `high`, every second or third of them where there are many.
function doublingTicks(high) {
  const last = Math.floor(Math.log2(high));
  const step = Math.max(1, Math.ceil((last + 1) / 6));
  return Array.from({ length: Math.floor(last / step) + 1 }, (_, k) => [2 ** (k * step), groupDigits(2 ** (k * step))]);
}

function scalingReading(one, pair, pairs) {
  const bold = (text) => element("b", { class: "number" }, text);
  return [
    `${one.name}, pair ${pair} (dims ${pair} and ${pair + pairs}): θ′ = `,
    bold(significant(one.theta[pair], 4)),
    ", divided by ",
    bold(significant(one.divisors[pair], 4)),
    ", wavelength ",
    bold(significant(wavelength(one.theta[pair]), 4)),
    " tokens.",
  ];
}

function scalingTable(all, meta, state, settings, series, colours, choose) {
  const heading = (text, kind = "") => element("th", { scope: "col", class: kind }, text);
  const number = (text, kind = "") => element("td", { class: `number ${kind}` }, text);
  const original = groupDigits(settings.original);
  const head = element(
    "tr",
    {},
    heading("scaling"),
    heading("factor on cos, sin"),
    heading("on scores", "far"),
    heading("pairs kept"),
    heading("divided by s", "far"),
    heading("last pair ÷"),
    heading(`slow pairs with new angles at l`),
  );
  const body = all.map((one, k) => {
    const look = scalingLook(one, k, meta, series, colours, one.key === state.method);
    const swatch = svgElement("svg", { width: 22, height: 6, "aria-hidden": "true" }, svgElement("line", { x1: 0, y1: 3, x2: 22, y2: 3, stroke: look.colour, "stroke-width": 2, "stroke-dasharray": PLOT_DASHES[look.dash].join(" ") || null }));
    const pressed = one.key === state.method;
    const name = element("button", { type: "button", "aria-pressed": pressed, "data-method": one.key, onclick: () => choose(one.key) }, swatch, one.name);
    return element(
      "tr",
      { class: pressed ? "chosen" : null },
      element("th", { scope: "row" }, name),
      number(decimals(one.factor, 4)),
      number(`× ${decimals(one.factor ** 2, 4)}`, "far"),
      number(`${one.kept} of ${one.theta.length}`),
      number(one.rope.factor > 1 ? String(one.divided) : "–", "far"),
      number(significant(one.divisors.at(-1))),
      number(String(one.fresh.length)),
    );
  });
  const note = `L = ${original}, l = ${groupDigits(settings.length)}: pairs that made less than a turn within L, and turn further within l than they did.`;
  return [element("caption", { class: "unseen" }, note), element("thead", {}, head), element("tbody", {}, body)];
}

function applyButtons(meta, state, settings, apply) {
  if (!meta.runs) return [];
  const name = (key) => meta.methods.find(([method]) => method === key)?.[1];
  const stands = meta.applied && state.sent !== undefined && state.sent === JSON.stringify({ method: state.method, ...settings });
  const text = stands ? `${name(meta.applied)} is applied` : `Apply ${state.method === "none" ? "no scaling" : name(state.method)} to ${meta.target}`;
  const buttons = [element("button", { type: "button", class: "apply-button", "data-apply": "apply", disabled: stands ? "" : null, onclick: () => apply(state.method) }, text)];
  if (meta.applied) buttons.push(element("button", { type: "button", class: "apply-button", "data-apply": "undo", onclick: () => apply("") }, "Undo"));
  return buttons;
}
