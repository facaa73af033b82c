// One pair of the model's q and k, turned by any position: drawn, as a matrix, as a complex product, and what it adds to q . k.

const SPEEDS = [
  ["turn", "a turn in 6 s"],
  ["1", "1 token a second"],
  ["10", "10"],
  ["100", "100"],
];
const MOVES = [
  ["together", "both move"],
  ["query", "the query moves"],
];
const PAIRINGS = [
  ["half-split", "half-split"],
  ["interleaved", "interleaved"],
];
const STEP_MS = 600;

export default function ({ data, parentElement }) {
  const host = parentElement.querySelector(".gb");
  const turning = readTurning(data);
  const state = mounted(parentElement, () => ({ view: null, playing: false, frame: 0, stop: null }));
  state.stop?.();
  state.view = startView(turning, state.view ?? viewFromUrl(Object.values(turning.urls)));
  const colours = themeColours(host);
  const parts = turningElements(host, turning, state, { set, play });
  const { urls } = turning;
  let rate = 0;

  // A change of the view: drawn at once, in the address a moment later.
  function set(change, tell = true) {
    Object.assign(state.view, change);
    clampView(turning, state.view);
    if (tell) viewToUrl(Object.fromEntries(Object.keys(change).map((name) => [urls[name], rounded(state.view[name])])));
    draw();
  }

  // Both positions, or the query's, go on by so many tokens; it ends where the trained context does.
  function advance(tokens) {
    const { view } = state;
    const room = turning.trained - 1 - Math.max(view.m, view.move === "together" ? view.n : 0);
    const step = Math.min(tokens, Math.max(0, room));
    Object.assign(view, { m: view.m + step, n: view.n + (view.move === "together" ? step : 0) });
    draw();
    return step === tokens;
  }

  function play(on) {
    window.cancelAnimationFrame(state.frame);
    window.clearTimeout(state.frame);
    state.playing = on;
    if (on && state.view.m >= turning.trained - 1) restart();
    if (on && reducedMotion()) stepOn();
    else if (on) {
      let before = performance.now();
      const run = (now) => {
        const going = advance(((now - before) / 1000) * tokensPerSecond());
        before = now;
        if (going) state.frame = window.requestAnimationFrame(run);
        else play(false);
      };
      state.frame = window.requestAnimationFrame(run);
    }
    if (!on) set({ m: Math.round(state.view.m), n: Math.round(state.view.n) });
    drawPlay();
  }

  // Without motion: a step every 0.6 s, of a twelfth of a turn or of as many tokens as pass in that time.
  function stepOn() {
    const step = Math.max(1, Math.round((tokensPerSecond() * STEP_MS) / 1000));
    if (!advance(step)) return play(false);
    state.frame = window.setTimeout(stepOn, STEP_MS);
  }

  function restart() {
    const apart = Math.max(0, state.view.m - state.view.n);
    Object.assign(state.view, { m: state.view.move === "together" ? apart : 0, n: state.view.move === "together" ? 0 : state.view.n });
  }

  const tokensPerSecond = () => (state.view.speed === "turn" ? wavelengthOf(turning, state.view) / 6 : Number(state.view.speed));

  function drawPlay() {
    parts.play.textContent = state.playing ? "Pause" : "Play";
    parts.play.setAttribute("aria-pressed", String(state.playing));
  }

  function draw() {
    const width = host.clientWidth;
    if (!width) return;
    const { view } = state;
    const now = turned(turning, view);
    parts.show(view);
    const size = Math.min(width, width > 760 ? 400 : 340);
    drawPlane(parts.plane, size, { ...now, theta: now.theta, m: view.m, n: view.n }, colours);
    parts.plane.setAttribute("aria-label", `pair ${view.pair}: q turned by ${shownPosition(view.m)} positions, k by ${shownPosition(view.n)}`);
    parts.dims.replaceChildren(...dimsRows(view, turning.dim, turning.pairs));
    parts.matrices.replaceChildren(
      matrixWords("q", view.m, now.q, now.turnedQ, now.theta, turning.factor),
      matrixWords("k", view.n, now.k, now.turnedK, now.theta, turning.factor),
    );
    parts.complex.replaceChildren(
      complexWords("q", "m", view.m, now.q, now.turnedQ, now.theta, turning.factor),
      complexWords("k", "n", view.n, now.k, now.turnedK, now.theta, turning.factor),
    );
    parts.contribution.replaceChildren(...contributionWords(now.share, now.whole, view, view.move === "together"));
    drawContribution(parts.chart, width, turning, view, now, colours);
    const waves = wavelengthOf(turning, view);
    rate = tokensPerSecond();
    parts.rate.textContent = `${significant(rate)} tokens a second; pair ${view.pair} turns once in ${significant(waves, 4)} tokens, ${significant(turning.trained / waves)} times within the trained context of ${groupDigits(turning.trained)}`;
  }

  const figure = host.querySelector(".turning");
  figure.read = () => ({ ...state.view, ...turned(turning, state.view), playing: state.playing });
  draw();
  drawPlay();
  whenFontsLoad(draw);
  const stops = [onWidth(host, draw), onView(urls.pair, (pair) => Number.isInteger(Number(pair)) && Number(pair) !== state.view.pair && set({ pair: Number(pair) }, false))];
  if (state.playing) play(true);
  state.stop = () => {
    window.cancelAnimationFrame(state.frame);
    window.clearTimeout(state.frame);
    stops.forEach((stop) => stop());
  };
  return () => {
    state.stop();
    unmount(parentElement);
  };
}

const rounded = (value) => (typeof value === "number" ? Math.round(value) : value);

function readTurning(data) {
  const { meta, arrays } = unpack(data);
  const [q, k, theta] = arrays;
  const [heads, count, dim] = q.shape;
  return { ...meta, q, k, theta: theta.data, pairs: theta.shape[0], heads, kvHeads: k.shape[0], count, dim };
}

// What is looked at, from the address or from before; the last query, the first key after position 0, and a pair that moves visibly.
function startView(turning, given) {
  const { urls } = turning;
  const number = (name, otherwise) => {
    const value = Number.parseInt(given[name] ?? given[urls[name]], 10);
    return Number.isInteger(value) ? value : otherwise;
  };
  const word = (name, options) => {
    const value = given[name] ?? given[urls[name]];
    return options.some(([key]) => key === value) ? value : options[0][0];
  };
  const query = number("query", turning.count - 1);
  const key = number("key", Math.min(1, turning.count - 1));
  const view = {
    head: number("head", 0),
    query,
    key,
    pair: number("pair", Math.min(turning.pairs - 1, Math.round(turning.pairs / 4))),
    m: number("m", query),
    n: number("n", key),
    pairing: word("pairing", PAIRINGS),
    move: word("move", MOVES),
    speed: word("speed", SPEEDS),
  };
  return clampView(turning, view);
}

function clampView(turning, view) {
  const clamp = (value, last) => Math.max(0, Math.min(last, value));
  view.head = clamp(view.head, turning.heads - 1);
  view.query = clamp(view.query, turning.count - 1);
  view.key = clamp(view.key, turning.count - 1);
  view.pair = clamp(view.pair, turning.pairs - 1);
  view.m = clamp(view.m, turning.trained - 1);
  view.n = clamp(view.n, turning.trained - 1);
  return view;
}

const wavelengthOf = (turning, view) => (2 * Math.PI) / turning.theta[view.pair];

// The pair's numbers before and after, what it adds to q . k, and the whole product over all pairs and the dims that do not turn.
function turned(turning, { head, query, key, pair, m, n, pairing }) {
  const { q, k, theta, factor, dim, pairs, count, kvHeads, heads } = turning;
  const atQ = (head * count + query) * dim;
  const atK = (Math.floor((head * kvHeads) / heads) * count + key) * dim;
  const dims = (i) => (pairing === "half-split" ? [i, i + pairs] : [2 * i, 2 * i + 1]);
  const of = (array, at, i) => dims(i).map((d) => array.data[at + d]);
  const turn = ([a, b], angle) => [factor * (a * Math.cos(angle) - b * Math.sin(angle)), factor * (a * Math.sin(angle) + b * Math.cos(angle))];
  let whole = 0;
  for (let i = 0; i < pairs; i++) {
    const [[a, b], [c, d]] = [turn(of(q, atQ, i), m * theta[i]), turn(of(k, atK, i), n * theta[i])];
    whole += a * c + b * d;
  }
  for (let d = 2 * pairs; d < dim; d++) whole += q.data[atQ + d] * k.data[atK + d];
  const [ownQ, ownK] = [of(q, atQ, pair), of(k, atK, pair)];
  const [turnedQ, turnedK] = [turn(ownQ, m * theta[pair]), turn(ownK, n * theta[pair])];
  return { q: ownQ, k: ownK, turnedQ, turnedK, theta: theta[pair], share: turnedQ[0] * turnedK[0] + turnedQ[1] * turnedK[1], whole };
}

function turningElements(host, turning, state, { set, play }) {
  const token = (position) => [`${position} `, element("span", { class: "token" }, tokenSpans(turning.tokens[position]))];
  const range = (name, last, key, write = (value) => String(value), extra = () => ({})) =>
    labelledRange({ name, low: 0, high: last, whole: true, write, hear: (value) => set({ [key]: value, ...extra(value) }) });
  const last = turning.trained - 1;
  const ranges = {
    head: range("Query head", turning.heads - 1, "head"),
    query: range("q of token", turning.count - 1, "query", token, (value) => ({ m: value })),
    key: range("k of token", turning.count - 1, "key", token, (value) => ({ n: value })),
    pair: range("Pair i", turning.pairs - 1, "pair"),
    m: range("Position m of q", last, "m", shownPosition, (value) => together(value - state.view.m, "n")),
    n: range("Position n of k", last, "n", shownPosition, (value) => together(value - state.view.n, "m")),
  };
  const together = (step, other) => (state.view.move === "together" ? { [other]: Math.max(0, Math.min(last, state.view[other] + step)) } : {});
  for (const key of ["head", "query", "key", "pair"]) ranges[key].input.disabled = Number(ranges[key].input.max) === 0;
  const playButton = element("button", { type: "button", class: "play", onclick: () => play(!state.playing) });
  const step = element("button", { type: "button", class: "play", onclick: () => (play(false), set({ m: state.view.m + 1, ...together(1, "n") })) }, "Step");
  const rows = [
    ["move", "What moves", MOVES],
    ["speed", "Speed", SPEEDS],
    ["pairing", "Pairing read", PAIRINGS],
  ].map(([key, label, options]) => [key, buttonRow(label, options, state.view[key], (value) => set({ [key]: value }))]);
  const parts = {
    play: playButton,
    plane: element("canvas", { role: "img" }),
    chart: element("canvas", { role: "img", "aria-label": "what this pair adds to q times k, by the position of the query" }),
    dims: element("div"),
    matrices: element("div", { class: "matrices" }),
    complex: element("div", { class: "complexes" }),
    contribution: element("div", { class: "contribution" }),
    rate: element("div", { class: "note rate" }),
  };
  const row = Object.fromEntries(rows);
  const legend = element(
    "div",
    { class: "note plane-legend" },
    element("span", {}, element("i", { class: "disc" }), "read off the model, not turned"),
    element("span", {}, element("i", { class: "ring" }), "turned by its position"),
  );
  const numbers = element(
    "div",
    { class: "numbers" },
    element("div", { class: "caption" }, "Dims of a head"),
    row.pairing,
    parts.dims,
    element("div", { class: "caption" }, "As a matrix"),
    parts.matrices,
    element("div", { class: "caption" }, "As a complex product"),
    parts.complex,
  );
  host.replaceChildren(
    element(
      "div",
      { class: "turning" },
      element("div", { class: "choices" }, ["head", "pair", "query", "key"].map((key) => ranges[key].node)),
      element("div", { class: "motion" }, element("div", { class: "buttons" }, playButton, step), row.move, row.speed),
      element("div", { class: "positions" }, ranges.m.node, ranges.n.node),
      parts.rate,
      element("div", { class: "main" }, element("div", {}, parts.plane, legend), numbers),
      parts.contribution,
      parts.chart,
      figureSaves("rope-pair", () => [parts.plane, parts.chart], () => turningRows(turning, state.view), themeColours(host)),
    ),
  );
  parts.show = (view) => {
    for (const [key, one] of Object.entries(ranges)) one.show(view[key]);
    for (const [key, buttons] of rows) for (const button of buttons.children) button.setAttribute("aria-pressed", String(button.dataset.value === view[key]));
  };
  return parts;
}

function turningRows(turning, view) {
  const now = turned(turning, view);
  const head = ["vector", "token", "pair", "position", "theta", "a", "b", "a turned", "b turned"];
  const row = (name, token, position, before, after) => [name, token, view.pair, position, now.theta, ...before, ...after];
  return [head, row("q", view.query, view.m, now.q, now.turnedQ), row("k", view.key, view.n, now.k, now.turnedK)];
}

// The pair's share along the position that moves: six of its turns, or the trained context if that is less.
function drawContribution(canvas, width, turning, view, now, colours) {
  const span = Math.max(16, Math.min(turning.trained - 1, 6 * wavelengthOf(turning, view)));
  const page = Math.floor(view.m / span + 1e-9);
  const [from, to] = [page * span, Math.min((page + 1) * span, Math.max(span, turning.trained - 1))];
  const apart = view.m - view.n;
  const steps = Math.min(600, Math.max(120, Math.round(width)));
  const xs = Array.from({ length: steps + 1 }, (_, s) => from + ((to - from) * s) / steps);
  const start = { angle: Math.atan2(now.q[1], now.q[0]) - Math.atan2(now.k[1], now.k[0]), size: turning.factor ** 2 * Math.hypot(...now.q) * Math.hypot(...now.k) };
  const shareAt = (distance) => start.size * Math.cos(start.angle + distance * now.theta);
  const ys = xs.map((m) => (view.move === "together" ? shareAt(apart) : shareAt(m - view.n)));
  const whole = plotAxis(-1.15 * start.size || -1, 1.15 * start.size || 1, { most: 4 });
  drawPlot(
    canvas,
    width,
    190,
    {
      x: plotAxis(from, to, { most: 6 }),
      y: whole,
      xTitle: view.move === "together" ? "position m of q, k moves with it →" : "position m of q, k stays →",
      yTitle: "what this pair adds to q′ · k′",
      lines: [{ name: "", xs, ys, colour: colours.accent }],
      verticals: [{ x: view.m }],
      dots: [{ x: view.m, y: now.share, colour: colours.accent }],
    },
    colours,
  );
}
