// Colours, ramps and patterns, all taken from the theme's CSS variables so that a theme change needs no second table.

function themeColours(host) {
  const style = getComputedStyle(host);
  const read = (name) => style.getPropertyValue(name).trim();
  const ink = read("--st-text-color");
  const background = read("--st-background-color");
  return {
    ink,
    background,
    ink2: read("--st-gray-text-color"),
    ink3: `rgb(${mixed(rgbOf(ink), rgbOf(background), 0.66).map(Math.round)})`,
    rule: read("--st-gray-color"),
    hairline: read("--st-border-color"),
    surface: read("--st-secondary-background-color"),
    accent: read("--st-primary-color"),
    accentSoft: read("--st-blue-background-color"),
    measured: read("--st-orange-color"),
    bad: read("--st-red-color"),
    mono: read("--st-code-font") || "monospace",
    sans: read("--st-font") || "sans-serif",
  };
}

const mixed = (a, b, share) => a.map((value, k) => value * share + b[k] * (1 - share));

function rgbOf(colour) {
  const context = new OffscreenCanvas(1, 1).getContext("2d");
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
}

// ---- The ramps: ten stops from the theme, interpolated in OKLab (Björn Ottosson, 2020) to 256 ------------------------

const toLinear = (v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
const toByte = (v) => Math.max(0, Math.min(255, Math.round(255 * (v <= 0.0031308 ? 12.92 * v : 1.055 * v ** (1 / 2.4) - 0.055))));

function labOf(rgb) {
  const [r, g, b] = rgb.map(toLinear);
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

function rgbOfLab([lightness, a, b]) {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ].map(toByte);
}

// {rgb: [[r, g, b] x 256], css: ["rgb(...)" x 256], packed: Uint32Array(256) for the pixels of an ImageData}
// `kind` is "sequential" (zero to one) or "diverging" (most negative to most positive, zero in the middle).
function themeRamp(host, kind = "sequential") {
  const list = getComputedStyle(host).getPropertyValue(`--st-chart-${kind}-colors`);
  const stops = list.split(/,(?![^(]*\))/).map((stop) => labOf(rgbOf(stop.trim())));
  const rgb = Array.from({ length: 256 }, (_, index) => {
    const place = (index / 255) * (stops.length - 1);
    const below = Math.min(stops.length - 2, Math.floor(place));
    return rgbOfLab(mixed(stops[below + 1], stops[below], place - below));
  });
  const packed = Uint32Array.from(rgb, ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0);
  return { rgb, packed, css: rgb.map(([r, g, b]) => `rgb(${r},${g},${b})`) };
}

// The index into a ramp: a weight by its square root; a linear value between two ends; a signed value about zero.
const rootIndex = (weight) => Math.round(255 * Math.sqrt(Math.max(0, Math.min(1, weight))));
const linearIndex = (value, low, high) => Math.round(255 * Math.max(0, Math.min(1, (value - low) / (high - low || 1))));
const signedIndex = (value, limit) => linearIndex(value, -limit, limit);

// ---- States are patterns ---------------------------------------------------------------------------------------------

// "hatch": masked; "dots": not computed; "cross": NaN or infinity. In CSS pixels, crisp at any device pixel ratio.
function statePattern(context, kind, colour) {
  const ratio = pixelRatio();
  const pitch = { hatch: 6, dots: 7, cross: 6 }[kind];
  const size = Math.round(pitch * ratio);
  const tile = new OffscreenCanvas(size, size);
  const pen = tile.getContext("2d");
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = ratio;
  pen.globalAlpha = kind === "hatch" ? 0.6 : 1;
  pen.beginPath();
  if (kind === "dots") {
    pen.arc(size / 2, size / 2, 0.8 * ratio, 0, 2 * Math.PI);
    pen.fill();
  } else {
    for (const shift of [-size, 0, size]) {
      pen.moveTo(shift - 1, size + 1);
      pen.lineTo(shift + size + 1, -1);
      if (kind === "cross") {
        pen.moveTo(shift - 1, -1);
        pen.lineTo(shift + size + 1, size + 1);
      }
    }
    pen.stroke();
  }
  const pattern = context.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}
