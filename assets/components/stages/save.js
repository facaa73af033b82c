// What the buttons save: the stage as it is drawn and the numbers of its matrix; what each position reads most.

function addSaves(page) {
  const { nodes } = page;
  const place = (name) => () => `${name}-layer-${page.field.meta.layer}-head-${page.field.meta.first_head + page.head}`;
  const title = () => `${nodes.title.textContent}, layer ${page.field.meta.layer}`;
  const canvases = () => [nodes.matrix, ...nodes.panels.querySelectorAll("canvas"), nodes.bar];
  nodes.save.append(figureSaves(() => place(page.view.stage)(), canvases, () => stageRows(page), () => page.colours, { title }));
  nodes.saveText.append(figureSaves(place("reads"), null, () => textRows(page.field, page.head), () => page.colours, { csv: "CSV of what is read" }));
}

// A row for each cell that is shown and not masked.
function stageRows({ field, view, head }) {
  const stage = field.byKey[view.stage];
  const token = (row) => [field.positions[row], tokenCell(field.label(row))];
  const ofKeys = stage.columns === "key";
  const [first, across] = [stage.rows === "key" ? "key" : ofKeys ? "query" : "token", ofKeys ? ["key position", "key"] : ["dim"]];
  const rows = [[ofKeys ? "query position" : "position", first, ...across, stage.title]];
  for (let row = 0; row < field.rows; row++)
    for (let column = 0; column < field.columns(stage.key); column++) {
      const { state, value } = field.cell(stage.key, head, row, column);
      const name = ofKeys ? token(column) : [stage.columns === "model" ? field.dimOf(stage.key, head, row, column) : column];
      if (state !== MASKED) rows.push([...token(row), ...name, state === NOT_FINITE ? notFinite(value) : value]);
    }
  return rows;
}
