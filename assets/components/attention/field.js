// The weights of a payload behind one way of asking: what is in cell (layer, head, query, key) on this scale?
// Layout of the arrays: figures/attention.py. A cell is always in one of these states; only VALUE has a value.

const VALUE = 0; // a weight, or on the scale without the sink its share of what is left
const MASKED = 1; // the query may not read this key
const REMOVED = 2; // on the scale without the sink: position 0, and rows that have nothing else
const NOT_FINITE = 3; // NaN or infinity
const UNKNOWN = 4; // the exact weights of this head are not in the payload

function readField({ meta, arrays: [exact, maskBits, metrics, notFinite, thumbnails] }) {
  const [layers, heads, tokens] = meta.shape;
  const rowStart = meta.triangular ? (query) => (query * (query + 1)) / 2 : (query) => query * tokens;
  const cells = exact.shape[2];
  const masks = unpackMasks(maskBits, tokens);
  const labels = meta.tokens.map(flatToken);
  const cut = new Map(); // longest -> the distinct labels, cut to that many signs
  function labelsWithin(longest) {
    if (!cut.has(longest)) cut.set(longest, [...new Set(labels.map((text) => shortened(text, longest)))]);
    return cut.get(longest);
  }
  const left = new Map(); // (layer, head) -> what each row holds apart from position 0

  const has = (layer, head) =>
    layer >= meta.exact.layer && layer < meta.exact.layer + meta.exact.layers && head >= meta.exact.head && head < meta.exact.head + meta.exact.heads;
  const headStart = (layer, head) => ((layer - meta.exact.layer) * meta.exact.heads + (head - meta.exact.head)) * cells;
  const allowed = (layer, query, key) => masks[meta.mask_of_layer[layer]][query * tokens + key] === 1;

  function leftOf(layer, head) {
    const name = layer * heads + head;
    if (left.has(name)) return left.get(name);
    const sums = new Float64Array(tokens);
    const mask = masks[meta.mask_of_layer[layer]];
    for (let query = 0; query < tokens; query++) {
      const start = headStart(layer, head) + rowStart(query);
      const end = meta.triangular ? query + 1 : tokens;
      for (let key = 1; key < end; key++) if (mask[query * tokens + key]) sums[query] += exact.data[start + key];
    }
    left.set(name, sums);
    return sums;
  }

  // Fills `values` and `states` with the row of one query.
  function readRow(layer, head, query, scale, values, states) {
    const mask = masks[meta.mask_of_layer[layer]];
    const known = has(layer, head);
    const start = known ? headStart(layer, head) + rowStart(query) : 0;
    const rest = known && scale !== "raw" ? leftOf(layer, head)[query] : null;
    for (let key = 0; key < tokens; key++) {
      if (mask[query * tokens + key] === 0) states[key] = MASKED;
      else if (!known) states[key] = UNKNOWN;
      else {
        const weight = exact.data[start + key];
        values[key] = rest === null ? weight : weight / rest;
        if (rest !== null && (key === 0 || rest === 0)) states[key] = REMOVED;
        else states[key] = Number.isFinite(values[key]) ? VALUE : NOT_FINITE;
      }
    }
  }

  // Fills them with one row of a head's thumbnail, whose values are the maxima of blocks, in 8 bits.
  const side = thumbnails.shape[3];
  function readThumbnailRow(layer, head, row, scale, values, states) {
    const start = ((((scale === "raw" ? 0 : layers) + layer) * heads + head) * side + row) * side;
    for (let column = 0; column < side; column++) {
      const byte = thumbnails.data[start + column];
      states[column] = byte === 0 ? MASKED : byte === 255 ? NOT_FINITE : VALUE;
      values[column] = ((byte - 1) / 253) ** 2;
    }
  }

  const value = new Float64Array(tokens);
  const state = new Uint8Array(tokens);
  function cell(layer, head, query, key, scale) {
    readRow(layer, head, query, scale, value, state);
    return { state: state[key], value: state[key] === VALUE ? value[key] : null };
  }
  function row(layer, head, query, scale) {
    readRow(layer, head, query, scale, value, state);
    return Array.from(value, (weight, key) => ({ key, state: state[key], value: state[key] === VALUE ? weight : null }));
  }
  function thumbnailCell(layer, head, query, key, scale) {
    const place = (position) => Math.floor(position / meta.block);
    readThumbnailRow(layer, head, place(query), scale, value, state);
    const column = place(key);
    return { state: state[column], value: state[column] === VALUE ? value[column] : null };
  }

  return {
    layers,
    heads,
    tokens,
    kvHeads: meta.n_kv_heads,
    groupSize: heads / meta.n_kv_heads,
    labels,
    labelsWithin,
    parts: meta.tokens,
    block: meta.block,
    allExact: meta.exact.layers === layers && meta.exact.heads === heads,
    causal: meta.triangular,
    has,
    allowed,
    cell,
    row,
    readRow,
    // a thumbnail from the exact weights if all are here, so that it is drawn to the device's own pixels
    thumbnail(layer, head, scale) {
      const from = side === 0 ? readRow : readThumbnailRow;
      return { side: side || tokens, readRow: (line, values, states) => from(layer, head, line, scale, values, states) };
    },
    // the exact cell where it is known, else the block of the thumbnail it lies in
    anyCell: (layer, head, query, key, scale) =>
      has(layer, head) ? cell(layer, head, query, key, scale) : thumbnailCell(layer, head, query, key, scale),
    removed: (layer, head, query) => (has(layer, head) && allowed(layer, query, 0) ? exact.data[headStart(layer, head) + rowStart(query)] : 0),
    metric: (layer, head, index) => metrics.data[(layer * heads + head) * meta.metrics.length + index],
    notFinite: (layer, head) => notFinite.data[layer * heads + head],
    metrics: meta.metrics,
  };
}

// On an axis a long token is cut; the strip, the reading and the hover line say it whole.
function shortened(text, longest) {
  const signs = [...text];
  return signs.length > longest ? `${signs.slice(0, longest - 1).join("")}…` : text;
}

function unpackMasks({ data, shape: [count, bytes] }, tokens) {
  return Array.from({ length: count }, (_, which) => {
    const mask = new Uint8Array(tokens * tokens);
    for (let cell = 0; cell < mask.length; cell++) mask[cell] = (data[which * bytes + (cell >> 3)] >> (cell & 7)) & 1;
    return mask;
  });
}

// The key of this row that may be read and is nearest to the wanted one; the wanted one if none may be read.
function nearestKey(field, layer, query, wanted) {
  for (let distance = 0; distance < field.tokens; distance++)
    for (const key of [wanted - distance, wanted + distance])
      if (key >= 0 && key < field.tokens && field.allowed(layer, query, key)) return key;
  return wanted;
}

// One step on the map: along a row to the next key that may be read, up or down to the nearest such key of that row.
function stepCell(field, { layer, query, key }, down, right) {
  if (down) {
    const row = Math.max(0, Math.min(field.tokens - 1, query + down));
    return { query: row, key: nearestKey(field, layer, row, key) };
  }
  for (let next = key + right; next >= 0 && next < field.tokens; next += right) if (field.allowed(layer, query, next)) return { query, key: next };
  return { query, key };
}
