// Where the cells of the cache grid are. Positions may be pooled: a column then stands for several of them.

const CACHE = { axis: 46, top: 34, under: 92, gapFrom: 11, least: 3, scrollLeast: 5, scrollMost: 3000, most: 30 };

// {column, row, count, factor, labels, ...} for a host of this width; `scrolls` on a narrow page.
function cacheLayout(cache, hostWidth, labelLength) {
  const scrolls = hostWidth < 600;
  const room = Math.max(120, hostWidth - CACHE.axis - 2);
  const available = scrolls ? Math.max(room, Math.min(CACHE.scrollMost, cache.columns * 14)) : room;
  const least = scrolls ? CACHE.scrollLeast : CACHE.least;
  const merged = Math.max(1, Math.ceil((Math.ceil(cache.columns / cache.pooled) * least) / available));
  const factor = cache.pooled * merged;
  const wanted = Math.ceil(cache.columns / factor);
  const column = Math.min(CACHE.most, Math.max(least, Math.floor(available / wanted)));
  const roomFor = Math.min(
    Math.floor(available / column),
    cache.capacity === null ? Infinity : Math.ceil(cache.capacity / factor),
  );
  const count = Math.max(wanted, roomFor);
  const row = Math.max(
    3,
    Math.min(12, Math.floor(300 / Math.max(1, cache.layers)), Math.max(7, Math.round(column * 0.5))),
  );
  const top = CACHE.top + (factor > 1 ? 0 : Math.min(150, labelLength));
  const height = top + row * cache.layers;
  const gap = column >= CACHE.gapFrom ? 1 : 0;
  return {
    scrolls,
    factor,
    merged,
    count,
    column,
    row,
    gap,
    rowGap: row >= 7 ? gap : 0,
    top,
    bottom: height,
    width: count * column,
    height: height + CACHE.under,
  };
}

// The value of one cell: the longest of the stored keys that it stands for; NaN or infinity if one of them is.
function cachedLength(cache, layout, layer, head, column, length) {
  const from = column * layout.merged;
  const stored = Math.ceil(cache.held / cache.pooled);
  const to = Math.min(from + layout.merged, Math.ceil(length / cache.pooled), stored);
  const start = (layer * cache.heads + head) * stored;
  let largest = -Infinity;
  for (let index = from; index < to; index++) {
    const value = cache.lengths[start + index];
    if (Number.isNaN(value)) return NaN;
    if (value > largest) largest = value;
  }
  return largest;
}

// "empty": not computed yet; "left": was stored and has left the layer's window; "stored".
function cellState(cache, layout, layer, column, length) {
  const first = column * layout.factor;
  if (first >= length) return "empty";
  const window = cache.windows[layer] ?? null;
  const last = Math.min(length, first + layout.factor) - 1;
  return window !== null && last < length - window ? "left" : "stored";
}

// Which columns carry the text of their token: as many as there is room for, the newest always.
function labelledColumns(layout, newest, shown) {
  if (layout.factor > 1) return [];
  const each = Math.ceil(13 / layout.column);
  const chosen = [];
  for (let column = 0; column < shown; column += each) {
    if (newest === null || Math.abs(column - newest) >= each) chosen.push(column);
  }
  if (newest !== null) chosen.push(newest);
  return chosen;
}
