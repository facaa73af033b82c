// Shared by every component: ui/components.py puts this file in front of each component's own scripts, in one module.
// A component's default export runs again on every change of its data or of the theme, so whatever it does is safe to do twice.

// ---- The payload: the reading half of figures/payload.py ------------------------------------------------------------

const TYPED_ARRAYS = { uint8: Uint8Array, int32: Int32Array, float16: Uint16Array, float32: Float32Array, float64: Float64Array };

// {meta, arrays: [{dtype, shape, data}]}; float16 arrives as a Float32Array of the same values.
function unpack(bytes) {
  const own = bytes.slice(); // the view that is handed in may start at an odd address
  const length = new DataView(own.buffer).getUint32(0, true);
  const meta = JSON.parse(new TextDecoder().decode(own.subarray(4, 4 + length)));
  const arrays = meta.arrays.map(({ dtype, shape, offset, bytes: size }) => {
    const Typed = TYPED_ARRAYS[dtype];
    const raw = new Typed(own.buffer, 4 + length + offset, size / Typed.BYTES_PER_ELEMENT);
    return { dtype, shape, data: dtype === "float16" ? Float32Array.from(raw, halfToFloat) : raw };
  });
  return { meta, arrays };
}

function halfToFloat(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

// ---- Elements: text goes in as text, never as markup ----------------------------------------------------------------

// element("button", {class: "chip", type: "button", onclick: f, style: "..."}, "text", child, null)
function element(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

function svgElement(tag, properties = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

function filled(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value == null) continue;
    if (name.startsWith("on")) node[name] = value;
    else if (name === "style") node.style.cssText = value;
    else node.setAttribute(name, String(value)); // aria-pressed and its kin want "true" and "false" in letters
  }
  node.append(...children.flat().filter((child) => child != null && child !== false));
  return node;
}

// A row of text buttons of which one is pressed; `options` is [[value, label], ...]. Left and right arrows move along it.
function buttonRow(label, options, current, choose) {
  const row = element("div", { class: "button-row", role: "group", "aria-label": label });
  const buttons = options.map(([value, text]) =>
    element("button", { type: "button", "aria-pressed": value === current, "data-value": value, onclick: () => choose(value) }, text),
  );
  row.onkeydown = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const from = buttons.indexOf(row.getRootNode().activeElement);
    buttons[Math.max(0, Math.min(buttons.length - 1, from + step))].focus();
  };
  row.append(...buttons);
  return row;
}

// ---- What is kept between runs --------------------------------------------------------------------------------------

const MOUNTED = new WeakMap();

// The object this mount keeps for its whole life; `create` makes it on the first run.
function mounted(parentElement, create) {
  if (!MOUNTED.has(parentElement)) MOUNTED.set(parentElement, create());
  return MOUNTED.get(parentElement);
}

function unmount(parentElement) {
  MOUNTED.delete(parentElement);
}

// View state in the page's address: whole numbers and short words, written without a message to the server.
function viewFromUrl(names) {
  const query = new URLSearchParams(window.location.search);
  return Object.fromEntries(names.filter((name) => query.has(name)).map((name) => [name, query.get(name)]));
}

// Whoever listens with `onView` hears of it, so that two components of a page can show the same position or step.
// The address follows a moment after the last change, because browsers refuse one that changes 30 times a second; other components
// hear of it at once. `then` runs when the address is written: what it sends to Python finds the view there.
const ADDRESS_AFTER_MS = 150;
const address = { view: {}, page: "", timer: 0 };

function viewToUrl(view, then = () => {}) {
  if (address.page !== window.location.pathname) address.view = {}; // left over from another page
  address.page = window.location.pathname;
  Object.assign(address.view, view);
  window.clearTimeout(address.timer);
  address.timer = window.setTimeout(() => {
    if (address.page !== window.location.pathname) return;
    const url = new URL(window.location.href);
    for (const [name, value] of Object.entries(address.view)) {
      if (value == null) url.searchParams.delete(name);
      else url.searchParams.set(name, String(value));
    }
    address.view = {};
    if (url.href !== window.location.href) window.history.replaceState(window.history.state, "", url);
    then();
  }, ADDRESS_AFTER_MS);
  window.dispatchEvent(new CustomEvent("glassbox:view", { detail: view }));
}

// Calls `hear(value)` when any component writes `name` with viewToUrl; returns the function that stops it.
function onView(name, hear) {
  const listen = ({ detail }) => name in detail && hear(detail[name]);
  window.addEventListener("glassbox:view", listen);
  return () => window.removeEventListener("glassbox:view", listen);
}

// ---- Size and motion ------------------------------------------------------------------------------------------------

const pixelRatio = () => Math.max(1, window.devicePixelRatio || 1);
const reducedMotion = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

// Makes a canvas `width` x `height` CSS pixels with one store cell per device pixel; returns its cleared context, in CSS pixels.
function fitCanvas(canvas, width, height) {
  const ratio = pixelRatio();
  const [columns, rows] = [Math.round(width * ratio), Math.round(height * ratio)];
  const context = canvas.getContext("2d");
  if (canvas.width === columns && canvas.height === rows) context.reset();
  else {
    canvas.width = columns;
    canvas.height = rows;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

// Calls `draw` whenever the width of `node` changes; returns the function that stops it.
function onWidth(node, draw) {
  let width = node.clientWidth;
  const observer = new ResizeObserver(() => {
    if (Math.abs(node.clientWidth - width) < 1) return;
    width = node.clientWidth;
    draw();
  });
  observer.observe(node);
  return () => observer.disconnect();
}

// Canvas text is drawn in a fallback face until the font is there: load it, then draw again.
function whenFontsLoad(draw) {
  const faces = ["11px 'IBM Plex Mono'", "500 11px 'IBM Plex Mono'", "12px 'IBM Plex Sans'", "500 12px 'IBM Plex Sans'"];
  if (faces.every((face) => document.fonts.check(face))) return;
  Promise.all(faces.map((face) => document.fonts.load(face))).then(draw, () => {});
}

// ---- Numbers: the same rules as figures/format.py -------------------------------------------------------------------

const SUPERSCRIPT = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const withMinus = (text) => text.replace("-", "\u2212");

function notFinite(x) {
  return Number.isNaN(x) ? "NaN" : x > 0 ? "infinity" : "\u2212infinity";
}

function groupDigits(n) {
  return withMinus(String(Math.round(n)).replace(/\B(?=(\d{3})+(?!\d))/g, "\u2006"));
}

// `digits` decimals, or a power of ten where these would all be zero though the number is not.
function decimals(x, digits) {
  if (!Number.isFinite(x)) return notFinite(x);
  if (x !== 0 && Math.abs(x) < 0.5 * 10 ** -digits) return scientific(x);
  const text = x.toFixed(digits);
  const [whole, fraction] = text.replace(/^-(?=0(\.0*)?$)/, "").split(".");
  return withMinus(whole.replace(/\B(?=(\d{3})+(?!\d))/g, "\u2006")) + (fraction ? `.${fraction}` : "");
}

function scientific(x, digits = 1) {
  if (!Number.isFinite(x)) return notFinite(x);
  const [mantissa, exponent] = x.toExponential(digits).split("e");
  const power = [...String(Number(exponent))].map((sign) => (sign === "-" ? "⁻" : SUPERSCRIPT[sign])).join("");
  return `${withMinus(mantissa)} × 10${power}`;
}
