// One row for each thing broken: what is changed, loss and entropy as discs on the right run's axes, and what fails.

export default function ({ data, parentElement }) {
  const { axes, rows } = unpack(data).meta;
  const [right] = rows;
  const names = ["loss", "entropy"];
  const head = element("div", { class: "broken head", role: "row" }, element("span", { role: "columnheader" }, "what is changed"), axes.map(axisHead), element("span", { role: "columnheader" }, "what fails, measured"));
  const body = rows.map((row, index) =>
    element(
      "div",
      { class: index ? "broken" : "broken right", role: "row", "data-name": row.name },
      element("div", { class: "what", role: "rowheader" }, element("div", { class: "name" }, row.name), element("div", { class: "formula" }, row.formula), row.line ? element("code", { class: "line" }, row.line) : null),
      names.map((name, which) => brokenCell(row, name, axes[which], right[name])),
      element("div", { class: "found", role: "cell" }, row.found.map((text) => element("p", {}, text))),
    ),
  );
  const table = element("div", { class: "breaks", role: "table", "aria-label": "runs with one thing broken" }, head, body);
  const numbers = () => [["what is changed", "formula", "line", ...axes.map((axis) => axis.name), "what fails"], ...rows.map(numbersOf)];
  const measured = rows.some((row) => row.loss_text !== "not run");
  parentElement.querySelector(".gb").replaceChildren(...[table, measured && figureSaves("broken-attention", null, numbers)].filter(Boolean));
}

const numbersOf = (row) => [row.name, row.formula, row.line, ...["loss", "entropy"].map((name) => row[name] ?? row[`${name}_text`]), row.found.join(" ")];

const axisShare = (value, axis) => `${(100 * Math.min(value, axis.top)) / axis.top}%`;

function axisHead(axis) {
  const tick = (value, side) => element("span", { class: `tick ${side}` }, withMinus(String(value)));
  return element("span", { class: "axis-head", role: "columnheader" }, axis.name, element("span", { class: "ticks", "aria-hidden": "true" }, tick(0, "low"), tick(Number(axis.top.toPrecision(3)), "high")));
}

// A disc is measured; the line through all rows is the right run; what was not run is a dashed ring; NaN is cross-hatched.
function brokenCell(row, name, axis, right) {
  const value = row[name];
  const text = row[`${name}_text`];
  const line = right === null ? null : element("i", { class: "reference", style: `left:${axisShare(right, axis)}` });
  const disc = value === null ? null : element("i", { class: "disc", style: `left:${axisShare(value, axis)}` });
  const state = value !== null ? null : element("i", { class: text === "not run" ? "dashed" : "nan" });
  return element("div", { class: `measure of-${name}`, role: "cell" }, element("span", { class: "axis", "aria-hidden": "true" }, line, disc, state), element("span", { class: "number", "data-measure": name }, text));
}
