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

// Tokens keep quotation marks of their own, so that none is taken for a formula.
function tableOf(field, head) {
  const text = (position) => `"${JSON.stringify(field.labels[position]).replaceAll('"', '""')}"`;
  const lines = field.labels.map((_, query) => {
    const { key, weight } = field.top(head, query);
    return [query, text(query), key, text(key), weight].join(",");
  });
  return `query position,query,key position,key it reads most,weight\n${lines.join("\n")}\n`;
}

function saveText({ field, head, view }) {
  const blob = new Blob([tableOf(field, head)], { type: "text/csv" });
  const link = element("a", { href: URL.createObjectURL(blob), download: `reads-layer-${field.meta.layer}-head-${view.head}.csv` });
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
