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

function costFigure({ groups, noticed, mark }) {
  const root = element("div", { class: "costs-figure" });
  root.append(element("div", { class: "costs", "data-mark": mark }, groups.map(costGroup)));
  root.append(element("ul", { class: "noticed" }, noticed.map((sentence) => element("li", {}, sentence))));
  return root;
}

export default function ({ data, parentElement }) {
  const host = parentElement.querySelector(".gb");
  const state = mounted(parentElement, () => ({ stop: () => {} }));
  state.stop();
  const payload = unpack(data);
  const draw = () => {
    const now = atStops(payload);
    if (!now) return;
    const fresh = costFigure(now.meta);
    if (host.firstChild) repaint(host.firstChild, fresh);
    else host.append(fresh);
    viewToUrl(now.meta.address);
  };
  draw();
  state.stop = onStops(payload, draw);
  return () => {
    state.stop();
    unmount(parentElement);
  };
}
