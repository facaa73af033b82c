// Groups of bars: a total over its parts, the longest part of a group as wide as its track. All of it is calculated, hence hollow.
// It follows the page's sliders while a thumb moves, and tells the address where they stand.

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
    element("div", { class: "parts", role: "list", "aria-label": title }, parts.map(costRow)),
    note ? element("p", { class: "note" }, note) : null,
  );
}

const costBars = ({ groups, mark }) => element("div", { class: "costs", "data-mark": mark }, groups.map(costGroup));
const costNoticed = ({ noticed }) => element("ul", { class: "noticed" }, noticed.map((sentence) => element("li", {}, sentence)));

function buildCosts() {
  const view = { meta: null, stop: () => {} };
  view.save = element("button", { type: "button", class: "save-button", onclick: () => saveRows("costs", view.meta.csv) }, "CSV");
  view.root = element("div", { class: "costs-figure" }, element("div"), element("div", { class: "save-row" }, view.save), element("ul"));
  return view;
}

export default function ({ data, parentElement }) {
  const host = parentElement.querySelector(".gb");
  const view = mounted(parentElement, buildCosts);
  view.stop();
  const payload = unpack(data);
  const draw = () => {
    const now = atStops(payload);
    if (!now) return;
    view.meta = now.meta;
    repaint(view.root.firstChild, costBars(now.meta));
    repaint(view.root.lastChild, costNoticed(now.meta));
    // At another stop than Python's last answer only what is shown is known; every digit comes with the next.
    view.save.disabled = now.meta.csv === null;
    if (!host.contains(view.root)) host.replaceChildren(view.root);
    viewToUrl(now.meta.address);
  };
  draw();
  view.stop = onStops(payload, draw);
  return () => {
    view.stop();
    unmount(parentElement);
  };
}
