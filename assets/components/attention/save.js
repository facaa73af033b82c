// What the buttons under the enlarged head save: its picture, map or lines, and its weights.

const saveButtons = (page) =>
  figureSaves(
    () => `attention-layer-${page.view.layer}-head-${page.view.head}`,
    () => [page.nodes.map, page.nodes.bar, page.nodes.lines],
    () => headRows(page.field, page.view),
    () => page.colours,
    {
      title: () => `Layer ${page.view.layer}, head ${page.view.head}${page.view.scale === "raw" ? "" : ", without position 0"}`,
      png: "PNG of this figure",
      csv: "CSV of this head",
    },
  );

// One row for each cell that is not masked.
function headRows(field, { layer, head, scale }) {
  const rows = [["query position", "query", "key position", "key", scale === "raw" ? "weight" : "share without position 0"]];
  for (let query = 0; query < field.tokens; query++)
    for (const { key, state, value } of field.row(layer, head, query, scale))
      if (state !== MASKED) rows.push([query, tokenCell(field.labels[query]), key, tokenCell(field.labels[key]), state === VALUE ? value : cellText({ state })]);
  return rows;
}
