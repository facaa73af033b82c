// Groups of bars: a total over its parts, the longest part of a group as wide as its track. All of it is calculated, hence hollow.

function costRow({ name, text, share }) {
  return element(
    "div",
    { class: "part", role: "listitem" },
    element("span", { class: "part-name" }, name),
    element("span", { class: "part-value number" }, text),
    element("span", { class: "track", "aria-hidden": "true" }, element("i", { style: `width:${(100 * share).toFixed(2)}%` })),
  );
}

function costGroup({ title, value, unit, note, parts }) {
  return element(
    "section",
    { class: "cost", "aria-label": title },
    element("div", { class: "name" }, title),
    element("div", { class: "headline number" }, value, element("span", { class: "unit" }, unit)),
    element("div", { class: "parts", role: "list" }, parts.map(costRow)),
    note ? element("p", { class: "note" }, note) : null,
  );
}

export default function ({ data, parentElement }) {
  const { groups, mark } = unpack(data).meta;
  const root = element("div", { class: "costs" }, groups.map(costGroup));
  root.dataset.mark = mark;
  parentElement.querySelector(".gb").replaceChildren(root);
}
