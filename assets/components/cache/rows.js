// The numbers behind the cache at one step: every layer and KV head, every position that is stored (or every few, where the payload
// holds their maximum).

function cacheRows(cache, fill) {
  const rows = [["layer", "KV head", "first position", "last position", "token", "length of the stored key"]];
  const [length] = fill ?? [0];
  const whole = { factor: cache.pooled, merged: 1 };
  for (let layer = 0; layer < cache.layers; layer++) {
    for (let head = 0; head < cache.heads; head++) {
      for (let first = 0; first < length; first += cache.pooled) {
        const column = first / cache.pooled;
        if (cellState(cache, whole, layer, column, length) !== "stored") continue;
        const last = Math.min(first + cache.pooled, length) - 1;
        const token = last > first ? null : tokenCell(cache.labels[first] ?? "");
        rows.push([layer, head, first, last, token, cachedLength(cache, whole, layer, head, column, length)]);
      }
    }
  }
  return rows;
}
