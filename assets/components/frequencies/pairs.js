// All pairs of a head: wavelengths against the trained context, where each stands at position m, and what another base does to each.

const BASES = [1e3, 1e7];

function pairsFigure(host, meta, state, send) {
  const { rope, trained, urls } = meta;
  const pairs = rope.rotary_dim / 2;
  const top = Math.max(8 * trained, 32768);
  const own = ropePowers(rope.base, rope.rotary_dim);
  state.base = numberFromUrl(state.view[urls.base], ...BASES, null);
  state.position ??= Math.round(numberFromUrl(state.view[urls.position], 1, top, trained));
  state.pair ??= numberFromUrl(state.view[urls.pair], 0, pairs - 1, pairs - 1);
  state.pair = Math.min(pairs - 1, Math.round(state.pair));
  const colours = themeColours(host);
  const base = () => state.base ?? rope.base;

  const baseRange = labelledRange({
    name: "Base b′",
    low: BASES[0],
    high: BASES[1],
    log: true,
    write: (value) => groupDigits(value),
    hear: (value) => setBase(Math.round(value)),
  });
  const positionRange = labelledRange({
    name: "Position m",
    low: 1,
    high: top,
    log: true,
    whole: true,
    write: (value) => groupDigits(value),
    hear: (value) => {
      state.position = value;
      state.view[urls.position] = value;
      viewToUrl({ [urls.position]: value === trained ? null : value });
      draw();
    },
  });
  const back = element("button", { type: "button", class: "save-button", onclick: () => setBase(null) }, `The model’s own base, ${groupDigits(rope.base)}`);
  const facts = element("div", { class: "facts", "aria-live": "polite" });
  const reading = element("div", { class: "note reading" });
  const [waves, ratios, turns] = ["wavelengths", "ratios of frequencies", "turns at the position"].map((what) =>
    element("canvas", { role: "img", tabindex: 0, "aria-label": `${what} by pair; arrow keys choose a pair` }),
  );
  const dials = element("canvas", { role: "img", "aria-label": "the angle of each pair at the position, as hands" });
  const saves = figureSaves("rope-pairs", () => [waves, ratios, dials, turns], table, colours);
  host.replaceChildren(
    element(
      "div",
      { class: "frequencies pairs" },
      element("div", { class: "controls" }, baseRange.node, positionRange.node),
      element("div", { class: "facts-row" }, facts, back),
      element("div", { class: "two" }, element("div", {}, waves), element("div", {}, ratios)),
      element("p", { class: "caption dials-name" }),
      dials,
      turns,
      reading,
      saves,
    ),
  );
  const figure = host.querySelector(".frequencies");
  figure.read = () => ({ base: base(), theta: Array.from(ropePowers(base(), rope.rotary_dim)), slow: slowPairs(ropePowers(base(), rope.rotary_dim), trained) });
  let plots = {};

  function setBase(value) {
    state.base = value;
    state.view[urls.base] = value;
    viewToUrl({ [urls.base]: value });
    draw();
  }

  function choosePair(pair) {
    viewToUrl({ [urls.pair]: pair });
  }

  function table() {
    const now = ropePowers(base(), rope.rotary_dim);
    const head = ["pair", "theta at the model's base", `theta at base ${base()}`, "ratio", "wavelength in tokens", `angle at position ${state.position}, radians`];
    return [head, ...Array.from(now, (theta, i) => [i, own[i], theta, theta / own[i], wavelength(theta), state.position * theta])];
  }

  function draw(pair = state.pair) {
    if (Number.isInteger(pair) && pair >= 0) state.pair = Math.min(pairs - 1, pair);
    const width = host.clientWidth;
    if (!width) return;
    const now = ropePowers(base(), rope.rotary_dim);
    const slow = slowPairs(now, trained);
    baseRange.show(Math.max(BASES[0], Math.min(BASES[1], base())));
    positionRange.show(state.position);
    back.disabled = state.base === null;
    facts.replaceChildren(...pairsFacts({ now, own, slow, base: base(), rope, trained, pairs }));
    const half = width > 760 ? (width - 32) / 2 : width;
    const lines = { own, now, slow, pair: state.pair, moved: base() !== rope.base, base: base(), rope, trained };
    plots = { waves: drawWaves(waves, half, lines, colours), ratios: drawRatios(ratios, half, lines, colours) };
    host.querySelector(".dials-name").textContent = `Where each pair stands at position ${groupDigits(state.position)}, from pair 0`;
    drawDials(dials, width, now, state.position, trained, state.pair, colours);
    plots.turns = drawTurns(turns, width, lines, state.position, colours);
    reading.replaceChildren(...pairReading(state.pair, now[state.pair], own[state.pair], state.position, pairs, trained));
  }

  listenToPairs(waves, () => plots.waves, pairs, () => state.pair, choosePair);
  listenToPairs(ratios, () => plots.ratios, pairs, () => state.pair, choosePair);
  listenToPairs(turns, () => plots.turns, pairs, () => state.pair, choosePair);
  draw();
  return draw;
}

function pairsFacts({ now, own, slow, base, rope, trained, pairs }) {
  const fact = (...words) => element("span", {}, ...words);
  const bold = (text) => element("b", { class: "number" }, text);
  const last = pairs - 1;
  const facts = [fact(element("i", { class: "ring" }), bold(`${slow.length} of ${pairs}`), ` pairs never complete a turn within ${groupDigits(trained)} tokens: ${rangesOf(slow)}`)];
  if (base !== rope.base) {
    const [first, end] = [now[0] / own[0], now[last] / own[last]];
    const times = (ratio) => (ratio >= 1 ? `${significant(ratio)} times faster` : `${significant(1 / ratio)} times slower`);
    facts.push(fact("base ", bold(`${base > rope.base ? "×" : "÷"} ${significant(base > rope.base ? base / rope.base : rope.base / base)}`), ": pair 0 turns ", bold(first === 1 ? "as before" : times(first)), `, pair ${last} `, bold(times(end))));
  }
  return facts;
}

const pairTicks = (pairs) => plotAxis(0, Math.max(1, pairs - 1), { most: 6, text: (value) => String(Math.round(value)) });

function drawWaves(canvas, width, { own, now, slow, pair, moved, trained }, colours) {
  const xs = Array.from(now.keys());
  const [ys, before] = [Array.from(now, wavelength), Array.from(own, wavelength)];
  const y = plotAxis(4, Math.max(10 * trained, wavelength(now.at(-1)), before.at(-1)) * 1.3, { log: true, most: 6 });
  const lines = [{ name: "b′", xs, ys, colour: colours.accent, rings: slow }];
  if (moved) lines.unshift({ name: "b", xs, ys: before, colour: colours.ink3 });
  return drawPlot(
    canvas,
    width,
    300,
    {
      x: pairTicks(xs.length),
      y,
      xTitle: "pair i →",
      yTitle: "wavelength 2π/θ, tokens (log scale)",
      lines: moved ? lines : [{ ...lines[0], name: "" }],
      bands: [{ from: trained, to: y.high }],
      limits: [{ y: trained, label: `less than one turn above ${groupDigits(trained)}` }],
      verticals: [{ x: pair }],
    },
    colours,
  );
}

function drawRatios(canvas, width, { own, now, pair, base, rope }, colours) {
  const xs = Array.from(now.keys());
  const ys = xs.map((i) => now[i] / own[i]);
  const alike = rope.base / base;
  const same = alike === 1;
  const y = plotAxis(Math.min(alike, 1) / (same ? 4 : 1.25), Math.max(alike, 1) * (same ? 4 : 1.25), { log: true, most: 5, text: (value) => String(Number(value.toPrecision(2))) });
  return drawPlot(
    canvas,
    width,
    300,
    {
      x: pairTicks(xs.length),
      y,
      xTitle: "pair i →",
      yTitle: "θ′ᵢ / θᵢ = (b / b′)^(2i/d) (log scale)",
      lines: [{ name: "", xs, ys, colour: colours.accent }],
      limits: [{ y: alike, label: same ? "b′ = b: move the base, and see which pairs follow" : `b / b′ = ${significant(alike)}: no pair gets it in full` }],
      verticals: [{ x: pair }],
    },
    colours,
  );
}

function drawTurns(canvas, width, { own, now, slow, pair, moved, trained }, position, colours) {
  const xs = Array.from(now.keys());
  const turnsOf = (theta) => Array.from(theta, (value) => (position * value) / (2 * Math.PI));
  const [ys, before] = [turnsOf(now), turnsOf(own)];
  const lines = [{ name: moved ? "b′" : "", xs, ys, colour: colours.accent, rings: slow }];
  if (moved) lines.unshift({ name: "b", xs, ys: before, colour: colours.ink3 });
  const low = Math.min(ys.at(-1), before.at(-1), 0.5);
  return drawPlot(
    canvas,
    width,
    240,
    {
      x: pairTicks(xs.length),
      y: plotAxis(low / 1.3, Math.max(ys[0], 2) * 1.3, { log: true, most: 6, text: (value) => significant(value, 1) }),
      xTitle: "pair i →",
      yTitle: `angle mθᵢ at position ${groupDigits(position)}, in turns (log scale)`,
      lines,
      limits: [{ y: 1, label: "one whole turn" }],
      verticals: [{ x: pair }],
    },
    colours,
  );
}

// One hand for each pair. Dashed rim: less than one turn within the trained context. The sector is what a slow pair has swept by m.
function drawDials(canvas, width, theta, position, trained, chosen, colours) {
  const pitch = Math.max(22, Math.min(44, width / theta.length));
  const columns = Math.max(1, Math.floor(width / pitch));
  const rows = Math.ceil(theta.length / columns);
  const pen = fitCanvas(canvas, width, rows * pitch);
  const radius = pitch / 2 - 3;
  theta.forEach((value, i) => {
    const [x, y] = [((i % columns) + 0.5) * pitch, (Math.floor(i / columns) + 0.5) * pitch];
    const angle = position * value;
    const slow = !(wavelength(value) <= trained);
    if (slow && angle < 2 * Math.PI) {
      pen.fillStyle = colours.accentSoft;
      pen.beginPath();
      pen.moveTo(x, y);
      pen.arc(x, y, radius, 0, -angle, true);
      pen.fill();
    }
    pen.strokeStyle = i === chosen ? colours.ink : colours.rule;
    pen.lineWidth = i === chosen ? 2 : 1;
    pen.setLineDash(slow ? [2, 2] : []);
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    pen.stroke();
    pen.setLineDash([]);
    pen.strokeStyle = colours.accent;
    pen.lineWidth = 1.75;
    plotSegment(pen, x, y, x + radius * Math.cos(angle), y - radius * Math.sin(angle));
  });
}

function pairReading(pair, theta, own, position, pairs, trained) {
  const bold = (text) => element("b", { class: "number" }, text);
  const within = (trained * theta) / (2 * Math.PI);
  return [
    `Pair ${pair}, dims ${pair} and ${pair + pairs}: θ = `,
    bold(significant(theta, 4)),
    " radians a token",
    theta === own ? "" : ` (${significant(own, 4)} at the model’s base)`,
    ", wavelength ",
    bold(significant(wavelength(theta), 4)),
    " tokens; ",
    bold(significant(within)),
    ` turns within the trained context, `,
    bold(significant((position * theta) / (2 * Math.PI))),
    ` at position ${groupDigits(position)}.`,
  ];
}
