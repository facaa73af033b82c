// The loss of the selected token taken apart, over a picture of all logits at the position that predicted it.

const LOSS = { top: 58, height: 118, left: 2, right: 2, label: 150 };

export default function ({ data, parentElement }) {
  const host = parentElement.querySelector(".gb");
  const { meta, arrays } = unpack(data);
  const numbers = lossNumbers(meta, arrays);
  const state = mounted(parentElement, () => ({ position: positionFromUrl(meta.url), stop: null }));
  state.stop?.();
  const measure = lossMeasure(host);
  const title = element("div", { class: "note loss-title" });
  const figure = element("div", { class: "loss-figure" });
  const terms = element("div", { class: "terms", "aria-live": "polite" });
  const shown = () => shownPosition(state.position, numbers.count);
  const saves = figureSaves(() => `logits-of-position-${shown()}`, () => [svgPicture(figure.querySelector("svg"))], () => lossRows(numbers, shown()), () => themeColours(host));
  host.replaceChildren(title, figure, saves, terms);

  function draw() {
    const width = Math.floor(host.clientWidth);
    if (!width) return;
    const at = shown();
    title.replaceChildren(...lossTitle(meta, at));
    figure.replaceChildren(at ? lossFigure(meta, numbers, at, width, measure) : emptyLoss(width));
    terms.classList.toggle("none", !at);
    terms.hidden = numbers.count < 2;
    terms.replaceChildren(...(at ? lossTerms(meta, numbers, at) : []));
  }

  draw();
  whenFontsLoad(draw);
  const stops = [onWidth(host, draw)];
  if (meta.url) stops.push(onView(meta.url, (position) => ((state.position = position), draw())));
  state.stop = () => stops.forEach((stop) => stop());
  return () => {
    state.stop();
    unmount(parentElement);
  };
}

function lossNumbers(meta, [logit, sum, counts, edges]) {
  const bins = counts.shape[1];
  return {
    count: meta.ids.length,
    bins,
    edges: edges.data,
    logit: logit.data,
    sum: sum.data,
    counts: (position) => counts.data.subarray(position * bins, (position + 1) * bins),
  };
}

function positionFromUrl(name) {
  const position = name ? Number.parseInt(viewFromUrl([name])[name], 10) : NaN;
  return Number.isInteger(position) ? position : null;
}

const shownPosition = (position, count) => (position == null || position < 0 || position >= count ? count - 1 : position);

function lossMeasure(host) {
  const context = new OffscreenCanvas(1, 1).getContext("2d");
  const face = getComputedStyle(host).getPropertyValue("--st-font") || "sans-serif";
  return (text) => {
    context.font = `500 12.5px ${face}`;
    return Math.ceil(context.measureText(text).width);
  };
}

function lossTitle(meta, at) {
  const token = element("span", { class: "token" }, tokenSpans(meta.pieces[at]));
  if (!at) return ["Position ", element("b", {}, "0"), ", ", token, ": no position before it predicted it, so it has no loss."];
  const before = element("span", { class: "token" }, tokenSpans(meta.pieces[at - 1]));
  return ["Position ", element("b", {}, String(at)), ", ", token, ", under the logits after ", before, " at position ", element("b", {}, String(at - 1))];
}

// How many entries of the vocabulary have which logit; the token's own; log-sum-exp; the distance between the two.
function lossFigure(meta, numbers, at, width, measure) {
  const { edges, bins } = numbers;
  const [low, high] = [edges[0], edges[bins]];
  const x = (value) => LOSS.left + ((width - LOSS.left - LOSS.right) * (value - low)) / (high - low);
  const bottom = LOSS.top + LOSS.height;
  const svg = svgElement("svg", { width, height: bottom + 40, viewBox: `0 0 ${width} ${bottom + 40}`, role: "img", class: "loss-svg", "aria-label": "The logits of the whole vocabulary at this position; the terms below hold the numbers" });
  const counts = numbers.counts(at - 1);
  const tallest = Math.log10(1 + Math.max(...counts));
  counts.forEach((count, bin) => {
    if (!count) return;
    const height = Math.max(1.5, (LOSS.height * Math.log10(1 + count)) / tallest);
    svg.append(
      svgElement("rect", { class: "bin", x: x(edges[bin]) + 0.5, y: bottom - height, width: Math.max(1, x(edges[bin + 1]) - x(edges[bin]) - 1), height, "data-count": count }),
    );
  });
  svg.append(svgElement("line", { x1: 0, y1: bottom, x2: width, y2: bottom, stroke: "var(--rule)" }));
  logitTicks(svg, low, high, x, bottom, width);
  const [logit, sum] = [numbers.logit[at], numbers.sum[at]];
  if (Number.isFinite(logit) && Number.isFinite(sum)) markLoss(svg, x(logit), x(sum), logit, sum, bottom, width, measure);
  return svg;
}

function logitTicks(svg, low, high, x, bottom, width) {
  const step = [1, 2, 5, 10, 20, 50, 100].find((size) => (high - low) / size <= Math.max(4, width / 90)) ?? 200;
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) {
    if (x(value) < 10 || x(value) > width - 10) continue;
    svg.append(
      svgElement("line", { x1: x(value), y1: bottom, x2: x(value), y2: bottom + 5, stroke: "var(--rule)" }),
      svgElement("text", { x: x(value), y: bottom + 18, "font-size": 11.5, "text-anchor": "middle", class: "quiet" }, decimals(value, 0)),
    );
  }
  svg.append(svgElement("text", { x: 0, y: bottom + 36, "font-size": 11.5, class: "quiet" }, "logit → ; bars: entries of the vocabulary, log scale"));
}

// z_y is read from the logits (a disc), log-sum-exp is a formula over all of them (a ring); the loss lies between.
function markLoss(svg, xLogit, xSum, logit, sum, bottom, width, measure) {
  const stem = (x, y, colour) => svgElement("line", { x1: x, y1: y, x2: x, y2: bottom, stroke: colour, "stroke-width": 1.25 });
  const label = (x, y, text, colour, before) => {
    const size = measure(text);
    const left = Math.max(0, Math.min(width - size, before ? x - size - 10 : x + 10));
    return svgElement("text", { x: left, y, "font-size": 12.5, "font-weight": 500, style: `fill:${colour}` }, text);
  };
  const y = 44;
  svg.append(
    stem(xLogit, y, "var(--measured)"),
    stem(xSum, y, "var(--accent)"),
    svgElement("line", { class: "distance", x1: xLogit, y1: y, x2: xSum, y2: y, stroke: "var(--measured)", "stroke-width": 2 }),
    svgElement("circle", { cx: xLogit, cy: y, r: 4, fill: "var(--measured)" }),
    svgElement("circle", { cx: xSum, cy: y, r: 6.5, fill: "none", stroke: "var(--accent)", "stroke-width": 2 }),
    label(xLogit, 12, `logit ${decimals(logit, 3)}`, "var(--measured)", true),
    label(xSum, 30, `log-sum-exp ${decimals(sum, 3)}`, "var(--accent)", xSum > width / 2),
  );
}

function emptyLoss(width) {
  const height = LOSS.top + LOSS.height + 40;
  const pattern = svgElement("pattern", { id: "no-loss", width: 7, height: 7, patternUnits: "userSpaceOnUse" }, svgElement("circle", { cx: 3.5, cy: 3.5, r: 0.8, fill: "var(--rule)" }));
  return svgElement(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", class: "loss-svg", "aria-label": "Nothing predicted this token", "data-state": "empty" },
    svgElement("text", { x: 0, y: LOSS.top - 10, "font-size": 11.5, class: "quiet" }, "not computed: nothing predicts position 0"),
    svgElement("defs", {}, pattern),
    svgElement("rect", { x: 0, y: LOSS.top, width, height: LOSS.height, fill: "url(#no-loss)" }),
    svgElement("line", { x1: 0, y1: LOSS.top + LOSS.height, x2: width, y2: LOSS.top + LOSS.height, stroke: "var(--rule)" }),
  );
}

// LSE(z) - z_y = loss, and exp(-loss): four numbers in the order in which they are read.
function lossTerms(meta, numbers, at) {
  const [logit, sum] = [numbers.logit[at], numbers.sum[at]];
  const loss = sum - logit;
  const term = (kind, sign, name, value, unit) =>
    element(
      "div",
      { class: "term", "data-term": kind },
      element("span", { class: "sign", "aria-hidden": "true" }, sign),
      element("div", { class: "value number" }, value),
      element("div", { class: "note" }, element("i", { class: `mark ${kind === "sum" ? "ring" : "disc"}`, "aria-hidden": "true" }), name, unit ? element("span", {}, ` ${unit}`) : null),
    );
  return [
    term("sum", "", "LSE(z)", decimals(sum, 4), `over ${groupDigits(meta.vocab_size)} logits`),
    term("logit", "\u2212", "logit of the token, z", decimals(logit, 4), ""),
    term("loss", "=", "loss,", decimals(loss, 4), "nats"),
    term("probability", "→", "probability, exp(\u2212loss)", probabilityText(Math.exp(-loss)), ""),
  ];
}

const probabilityText = (p) => (p >= 0.001 ? decimals(p, 4) : scientific(p, 2));

// How many logits lie from one edge of a bar to the next, at the position that predicted this one; none did position 0.
function lossRows({ counts, edges }, at) {
  const head = ["logit from", "to", "entries of the vocabulary"];
  return [head, ...(at ? Array.from(counts(at - 1), (count, bin) => [edges[bin], edges[bin + 1], count]) : [])];
}
