// One row a layer: two differences as discs on one logarithmic axis, what the number format explains shaded, the numbers beside.

const DECADE_PX = 44;

export default function ({ data, parentElement }) {
  const { rows, low, high, limit, names } = unpack(data).meta;
  const share = (value) => `${(100 * (Math.log10(Math.min(Math.max(value, low), high)) - Math.log10(low))) / (Math.log10(high) - Math.log10(low))}%`;
  const decades = [];
  for (let d = Math.log10(low); d <= Math.log10(high) + 1e-9; d += 1) decades.push(d);
  const every = decades.length > 8 ? 2 : 1;
  const ticks = decades
    .filter((d, index) => index % every === 0)
    .map((d) => element("span", { class: "tick", style: `left:${share(10 ** d)}` }, powerOfTen(Math.round(d))));
  const head = element("div", { class: "layer head" }, element("span", {}, "layer"), element("span", { class: "axis", "aria-hidden": "true" }, ticks), ...names.map((name, index) => element("span", { class: "number" }, element("i", { class: `disc of-${index}`, "aria-hidden": "true" }), name)));
  const body = rows.map(({ name, values, texts, bad, first }) =>
    element(
      "div",
      { class: bad ? "layer bad" : "layer", role: "row" },
      element("span", { class: "name" }, name, first ? element("b", {}, " first that differs") : null),
      element(
        "span",
        { class: "axis", "aria-hidden": "true" },
        element("i", { class: "allowed", style: `width:${share(limit)}` }),
        values.map((value, index) => (value === null ? null : element("i", { class: `disc of-${index}`, style: `left:${share(value)}` }))),
      ),
      ...texts.map((text) => element("span", { class: "number" }, text)),
    ),
  );
  parentElement.querySelector(".gb").replaceChildren(element("div", { class: "layers", role: "table", "aria-label": "differences by layer", style: `--decades:${decades.length * DECADE_PX}px` }, head, body));
}

function powerOfTen(exponent) {
  const digits = String(Math.abs(exponent)).split("").map((digit) => SUPERSCRIPT[Number(digit)]).join("");
  return exponent === 0 ? "1" : `10${exponent < 0 ? "⁻" : ""}${digits}`;
}
