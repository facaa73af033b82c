// RoPE's frequencies under sliders, computed here: all pairs under another base ("pairs"), or scalings side by side ("scalings").

export default function ({ data, parentElement, setStateValue }) {
  const host = parentElement.querySelector(".gb");
  const { meta } = unpack(data);
  const state = mounted(parentElement, () => ({ view: viewFromUrl(Object.values(meta.urls)), stop: null }));
  state.stop?.();
  const draw = { pairs: pairsFigure, scalings: scalingsFigure }[meta.view](host, meta, state, setStateValue);
  whenFontsLoad(draw);
  const stops = [onWidth(host, draw), onView("pair", (pair) => draw(Number(pair)))];
  state.stop = () => stops.forEach((stop) => stop());
  return () => {
    state.stop();
    unmount(parentElement);
  };
}

// A number from the address, within its bounds; else the default.
function numberFromUrl(text, low, high, otherwise) {
  const value = text == null || text === "" ? NaN : Number(text);
  return Number.isFinite(value) && value >= low && value <= high ? value : otherwise;
}

const wavelength = (theta) => (2 * Math.PI) / theta;

// Pairs whose wavelength exceeds the context: they never complete a turn within it.
const slowPairs = (theta, context) => Array.from(theta.keys()).filter((i) => !(wavelength(theta[i]) <= context));

// "46 to 63", "3, 5 to 7", "none"
function rangesOf(indices) {
  const runs = [];
  for (const i of indices) {
    const last = runs.at(-1);
    if (last && last[1] === i - 1) last[1] = i;
    else runs.push([i, i]);
  }
  return runs.length ? runs.map(([a, b]) => (a === b ? String(a) : `${a} to ${b}`)).join(", ") : "none";
}

// The pair that is pressed or dragged to, or one step along by the arrow keys; every figure of the page follows it.
function listenToPairs(canvas, plotNow, count, pairNow, choose) {
  canvas.onpointerdown = canvas.onpointermove = (event) => {
    if (!event.buttons) return;
    const pair = Math.round(plotNow().invert(event.clientX - canvas.getBoundingClientRect().left));
    if (pair !== pairNow()) choose(Math.max(0, Math.min(count - 1, pair)));
  };
  canvas.onkeydown = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -count, End: count }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    choose(Math.max(0, Math.min(count - 1, pairNow() + step)));
  };
}

// Draws again what holds buttons, and leaves the focus on the one that has the same data afterwards.
function keepingFocus(host, draw) {
  const held = Object.entries(host.getRootNode().activeElement?.dataset ?? {})[0];
  draw();
  if (held) host.querySelector(`button[data-${held[0]}="${CSS.escape(held[1])}"]`)?.focus({ preventScroll: true });
}
