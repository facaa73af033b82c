// The enlarged map as a picture and its numbers as a table, made and saved in the browser.

function saveButtons(page) {
  const button = (text, save) => element("button", { type: "button", class: "quiet", onclick: () => save(page) }, text);
  return element("div", { class: "save" }, button("PNG of this figure", savePicture), button("CSV of this head", saveTable));
}

const savedName = ({ layer, head }, ending) => `attention-layer-${layer}-head-${head}.${ending}`;

function savePicture({ nodes, view, colours }) {
  const empty = { width: 0, height: 0 };
  const [map, bar] = view.figure === "lines" ? [nodes.lines, empty] : [nodes.map, nodes.bar];
  const ratio = pixelRatio();
  const margin = 16 * ratio;
  const title = 28 * ratio;
  const picture = element("canvas");
  picture.width = Math.max(map.width, bar.width) + 2 * margin;
  picture.height = map.height + bar.height + title + 2 * margin;
  const context = picture.getContext("2d");
  context.fillStyle = colours.background;
  context.fillRect(0, 0, picture.width, picture.height);
  context.fillStyle = colours.ink;
  context.font = `500 ${14 * ratio}px ${colours.sans}`;
  context.fillText(`Layer ${view.layer}, head ${view.head}${view.scale === "raw" ? "" : ", without position 0"}`, margin, margin + 12 * ratio);
  context.drawImage(map, margin, margin + title);
  if (bar !== empty) context.drawImage(bar, margin, margin + title + map.height);
  picture.toBlob((blob) => save(blob, savedName(view, "png")));
}

function saveTable({ field, view }) {
  save(new Blob([tableOf(field, view)], { type: "text/csv" }), savedName(view, "csv"));
}

// One line for each cell that is not masked. Tokens keep quotation marks of their own, so that none is taken for a formula.
function tableOf(field, { layer, head, scale }) {
  const text = (position) => `"${JSON.stringify(field.labels[position]).replaceAll('"', '""')}"`;
  const lines = [`query position,query,key position,key,${scale === "raw" ? "weight" : "share without position 0"}`];
  for (let query = 0; query < field.tokens; query++)
    for (const { key, state, value } of field.row(layer, head, query, scale))
      if (state !== MASKED) lines.push([query, text(query), key, text(key), state === VALUE ? value : cellText({ state })].join(","));
  return `${lines.join("\n")}\n`;
}

function save(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
