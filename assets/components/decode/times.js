// The measured time of each step's forward: one disc a step, prefill among them.

const TIMES = { height: 112, top: 14, left: 44, right: 10, under: 26 };

function timesFigure(steps, selected, width, choose) {
  const times = steps.map((step) => step.time * 1000);
  const known = times.filter((time) => Number.isFinite(time) && time > 0);
  const bottom = TIMES.top + TIMES.height;
  const height = bottom + TIMES.under;
  const svg = svgElement("svg", {
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
    "aria-label": timesInWords(steps),
  });
  if (!known.length) return svg;
  const largest = Math.max(...known);
  const smallest = Math.min(...known);
  const log = largest / smallest > 8;
  const low = log ? Math.log10(smallest) - 0.15 : 0;
  const high = log ? Math.log10(largest) + 0.15 : largest * 1.12;
  const right = width - TIMES.right;
  const y = (time) => bottom - (TIMES.height * ((log ? Math.log10(time) : time) - low)) / (high - low);
  const x = (index) =>
    steps.length < 2 ? TIMES.left + 10 : TIMES.left + 10 + ((right - TIMES.left - 20) * index) / (steps.length - 1);
  for (const tick of timeTicks(low, high, log)) {
    const level = y(tick);
    svg.append(
      svgLine(TIMES.left, level, right, level, { stroke: "var(--hairline)" }),
      svgText(TIMES.left - 8, level + 4, decimals(tick, tick < 10 && tick % 1 ? 1 : 0), "end"),
    );
  }
  svg.append(svgLine(TIMES.left, bottom, right, bottom, { stroke: "var(--rule)" }));
  const each = Math.max(1, Math.ceil((steps.length * 30) / (right - TIMES.left)));
  steps.forEach((_, index) => {
    if (index % each === 0 && (index === 0 || x(index) - x(0) > 26))
      svg.append(svgText(x(index), bottom + 17, String(index), "middle"));
  });
  svg.append(svgLine(x(selected), TIMES.top, x(selected), bottom, { stroke: "var(--ink2)" }));
  const radius = Math.max(1.5, Math.min(3.5, ((right - TIMES.left) / steps.length) * 0.35));
  times.forEach((time, index) => {
    if (!(time > 0)) return;
    const ring = index === selected ? { stroke: "var(--background)", "stroke-width": 1.5 } : {};
    svg.append(
      svgElement("circle", {
        cx: x(index),
        cy: y(time),
        r: radius + (index === selected ? 2 : 0),
        fill: "var(--measured)",
        "data-step": index,
        ...ring,
      }),
    );
  });
  if (steps.length > 1) prefillName(svg, x(0), y(times[0]));
  svg.onclick = (event) => {
    const at = event.clientX - svg.getBoundingClientRect().left;
    const nearest = Math.round(((at - x(0)) / Math.max(1, x(steps.length - 1) - x(0))) * (steps.length - 1));
    choose(Math.max(0, Math.min(steps.length - 1, nearest)));
  };
  svg.dataset.scale = log ? "log" : "linear";
  return svg;
}

const svgLine = (x1, y1, x2, y2, properties) =>
  svgElement("line", { x1, y1, x2, y2, "stroke-width": 1, ...properties });
const svgText = (x, y, text, anchor) =>
  svgElement("text", { x, y, "font-size": 11, "text-anchor": anchor, style: "fill:var(--ink2)" }, text);

// The first disc by its name, beside it; over it where its neighbours would lie behind the word.
function prefillName(svg, x, y) {
  const next = svg.querySelector("[data-step='1']");
  const beside = !next || next.getAttribute("cx") - x > 60 || Math.abs(next.getAttribute("cy") - y) > 14;
  const name = beside ? svgText(x + 9, y + 4, "prefill", "start") : svgText(x - 4, y - 9, "prefill", "start");
  name.setAttribute("class", "named");
  svg.append(name);
}

// At most five ticks at 1, 2 or 5 times a power of ten, in milliseconds.
function timeTicks(low, high, log) {
  if (!log) {
    const size = 10 ** Math.floor(Math.log10(high / 3));
    const step = [1, 2, 5, 10].map((factor) => factor * size).find((value) => high / value <= 4);
    return Array.from({ length: Math.floor(high / step) + 1 }, (_, index) => index * step);
  }
  const ticks = [];
  for (let power = Math.floor(low); power <= high; power++) {
    for (const factor of high - low > 2 ? [1] : high - low > 1.2 ? [1, 3] : [1, 2, 5]) {
      const tick = factor * 10 ** power;
      if (Math.log10(tick) > low && Math.log10(tick) < high) ticks.push(tick);
    }
  }
  return ticks;
}

function timesInWords(steps) {
  if (!steps.length) return "time of each step: nothing has run";
  return `measured time of each step: prefill ${timeText(steps[0])}${steps.length > 1 ? `, then a median of ${decimals(medianTime(steps.slice(1)), 1)} milliseconds` : ""}`;
}

const timeText = (step) => `${decimals(step.time * 1000, 1)} ms`;

function medianTime(steps) {
  const times = steps.map((step) => step.time * 1000).sort((a, b) => a - b);
  const half = times.length >> 1;
  return times.length % 2 ? times[half] : (times[half - 1] + times[half]) / 2;
}
