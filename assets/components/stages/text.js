// Each map read as text: a sentence for every query, with the key that it reads most, and the same as a table to save.

const percent = (weight) => (Number.isFinite(weight) ? `${decimals(100 * weight, weight >= 0.0995 ? 0 : 1)} %` : notFinite(weight));

// "‘·Paris’ reads 61 % from ‘·France’"
function sentenceOf(field, head, position) {
  const { key, weight } = field.top(head, position);
  return `‘${field.labels[position]}’ reads ${percent(weight)} from ‘${field.labels[key]}’`;
}

// The list of a head is built once; afterwards only the current line moves.
function drawText(page) {
  const { field, nodes, view, head } = page;
  const made = `${field.meta.layer} ${view.head}`;
  if (page.textOf?.field !== field || page.textOf.made !== made) {
    page.textOf = { field, made };
    nodes.text.setAttribute("aria-label", `What each position reads most, layer ${field.meta.layer}, head ${view.head}`);
    nodes.text.replaceChildren(
      ...field.labels.map((_, position) =>
        element("li", {}, element("button", { type: "button", "data-query": position, onclick: () => change(page, { query: position, key: field.top(page.head, position).key }) },
          element("span", { class: "number position" }, String(position)), " ", sentenceOf(field, head, position))),
      ),
    );
  }
  nodes.text.querySelector("[aria-current]")?.removeAttribute("aria-current");
  const current = nodes.text.querySelector(`[data-query="${view.query}"]`);
  current?.setAttribute("aria-current", "true");
  const item = current?.parentElement;
  if (item && (item.offsetTop < nodes.text.scrollTop || item.offsetTop + item.offsetHeight > nodes.text.scrollTop + nodes.text.clientHeight))
    nodes.text.scrollTop = item.offsetTop - nodes.text.clientHeight / 2;
}

// A row for each position: the key that it reads most.
const textRows = (field, head) => [
  ["query position", "query", "key position", "key it reads most", "weight"],
  ...field.labels.map((label, query) => {
    const { key, weight } = field.top(head, query);
    return [query, tokenCell(label), key, tokenCell(field.labels[key]), weight];
  }),
];
