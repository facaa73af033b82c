// Pointer and keys on the grid and on the map, and what tests may ask of the two canvases.

const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-10, 0], PageDown: [10, 0] };

function listen(page) {
  const { grid, map, hover } = page.nodes;
  const at = (event) => [event.offsetX, event.offsetY];

  grid.onclick = (event) => {
    const found = headAt(page.field, page.grid, ...at(event));
    if (found) change(page, event.shiftKey || event.ctrlKey || event.metaKey ? togglePin(page.field, page.view, found) : found);
  };
  grid.onmousemove = (event) => {
    const found = headAt(page.field, page.grid, ...at(event));
    grid.title = found ? `layer ${found.layer}, head ${found.head}; with Shift or Ctrl a click pins it` : "";
  };
  grid.onkeydown = (event) => {
    if (event.key.toLowerCase() === "p" && !event.ctrlKey && !event.metaKey && !event.altKey) return change(page, togglePin(page.field, page.view, page.view));
    if (!plainKey(event)) return;
    const [down, right] = ARROWS[event.key] ?? [0, 0];
    event.preventDefault();
    const found = stepHead(page.field, page.grid, page.view, down, right, { Home: "first", End: "last" }[event.key]);
    if (found) change(page, found);
  };

  map.onclick = (event) => {
    const found = selectable(page, cellAt(page.field, page.map, ...at(event)));
    if (found) change(page, found);
  };
  map.ondblclick = (event) => {
    const found = selectable(page, cellAt(page.field, page.map, ...at(event)));
    if (found && page.map.zooms) change(page, { ...found, zoom: 1 - page.view.zoom });
  };
  map.onmousemove = (event) => {
    const found = cellAt(page.field, page.map, ...at(event));
    hover.textContent = found ? pointed(page, found) : "";
  };
  map.onmouseleave = () => (hover.textContent = "");
  map.onkeydown = (event) => {
    if (event.key === "Enter" && page.map.zooms) return change(page, { zoom: 1 - page.view.zoom });
    if (!plainKey(event)) return;
    event.preventDefault();
    const { layer, query } = page.view;
    const ends = { Home: 0, End: page.field.tokens - 1 };
    if (event.key in ends) change(page, { key: nearestKey(page.field, layer, query, ends[event.key]) });
    else change(page, stepCell(page.field, page.view, ...ARROWS[event.key]));
  };
}

const plainKey = (event) => (event.key in ARROWS || event.key === "Home" || event.key === "End") && !event.ctrlKey && !event.metaKey && !event.altKey;

// The cell that a click selects: not a masked one, and of a pooled block its largest.
function selectable({ field, view, map }, found) {
  if (!found) return null;
  const { query, key } = map.block > 1 ? largestInBlock(field, view, map, found) : found;
  return field.allowed(view.layer, query, key) ? { query, key } : null;
}

function pointed({ field, view, map }, found) {
  const { query, key } = map.block > 1 ? largestInBlock(field, view, map, found) : found;
  const text = hoverText(field, { query, key }, field.cell(view.layer, view.head, query, key, view.scale), 16);
  return map.block > 1 ? `largest here: ${text}` : text;
}

// Methods on the canvases that read back what is held and what is drawn.
function expose({ nodes: { grid, map }, field, view, map: layout, grid: heads }, shown) {
  const pixel = (canvas, x, y) => [...canvas.getContext("2d").getImageData(Math.floor(x * pixelRatio()), Math.floor(y * pixelRatio()), 1, 1).data];
  const centre = (index) => (layout.edge(index) + layout.edge(index + 1)) / 2;
  map.cellAt = (layer, head, query, key) => field.cell(layer, head, query, key, view.scale);
  map.placeOf = (query, key) => {
    const row = cellIndex(layout, layout.firstQuery, query);
    const column = cellIndex(layout, layout.firstKey, key);
    return row === null || column === null ? null : { x: layout.left + centre(column), y: layout.top + centre(row) };
  };
  map.colourAt = (query, key) => {
    const place = map.placeOf(query, key);
    return place && pixel(map, place.x, place.y);
  };
  map.shownAt = (query, key) => {
    const cell = cellIndex(layout, layout.firstQuery, query) * layout.cells + cellIndex(layout, layout.firstKey, key);
    if (!shown) return null;
    return { state: shown.states[cell], value: shown.states[cell] === VALUE ? shown.values[cell] : null };
  };
  grid.placeOf = (layer, head) => {
    const place = heads.place(layer, head);
    return place && { x: place.x + heads.thumb / 2, y: place.y + heads.thumb / 2 };
  };
  grid.colourAt = (layer, head, across, down) => {
    const { x, y } = heads.place(layer, head);
    return pixel(grid, x + across * heads.thumb, y + down * heads.thumb);
  };
}
