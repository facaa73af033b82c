// What heads are ranked by, which of them pass the filter, and in what order they stand.

const TOP_HEADS = 12;
const ORDERS = [
  ["place", "by layer"],
  ["down", "highest first"],
  ["up", "lowest first"],
];

const metricOf = (field, mode) => field.metrics.find((metric) => metric.key === mode) ?? null;

// The largest value that the scores of a mode may have: the end of the filter.
const scoreTop = (field, mode) => metricOf(field, mode)?.top ?? 1;

// The heads' scores in a mode that ranks them, by layer x head; NaN where undefined.
function headScores(field, view) {
  const index = field.metrics.findIndex((metric) => metric.key === view.grid);
  return Float64Array.from({ length: field.layers * field.heads }, (_, name) => {
    const [layer, head] = [Math.floor(name / field.heads), name % field.heads];
    return view.grid === "cell" ? (field.anyCell(layer, head, view.query, view.key, view.scale).value ?? NaN) : field.metric(layer, head, index);
  });
}

// Null in the mode "maps", which ranks nothing. Else
//   scores; kept(name): whether a head stands out; order: the names of the heads shown, ranked, or null where all stand in their place;
//   passing: how many heads have at least `view.least`, of `known` that have a score.
function rankHeads(field, view) {
  if (view.grid === "maps") return null;
  const scores = headScores(field, view);
  const names = [...scores.keys()].filter((name) => Number.isFinite(scores[name]));
  const ranked = names.toSorted((a, b) => scores[b] - scores[a] || a - b);
  const passing = view.least === null ? ranked : ranked.filter((name) => scores[name] >= view.least);
  const standing = new Set(view.least === null ? ranked.filter((name, rank) => rank < TOP_HEADS || scores[name] === scores[ranked[TOP_HEADS - 1]]) : passing);
  const order = view.order === "place" ? null : view.order === "down" ? passing : passing.toReversed();
  return { scores, order, kept: (name) => (order ? true : standing.has(name)), passing: passing.length, known: names.length };
}

// Under the grid: what the score is, and how many heads pass the filter.
function gridNotes(field, view, ranks) {
  if (!ranks) return [];
  const metric = metricOf(field, view.grid);
  const notes = [];
  if (metric) notes.push(ranks.known ? metric.definition : `${metric.name}: ${metric.undefined} in this prompt`);
  else if (!field.allExact) notes.push(`heads of other layers: the maximum of the ${field.block} × ${field.block} cells around it`);
  else notes.push(`the weight of position ${view.query} on position ${view.key}`);
  if (view.least !== null && ranks.known) {
    const many = ranks.passing === 1 ? "head has" : "heads have";
    notes.push(`${groupDigits(ranks.passing)} of ${groupDigits(field.layers * field.heads)} ${many} at least ${scoreText(field, view.grid, view.least)}`);
  }
  return notes;
}

const scoreText = (field, mode, score) => decimals(score, metricOf(field, mode)?.tokens ? 1 : 3);

// ---- Ranked: as many columns as fit, row by row, each head small with its name and score -----------------------------

const RANKED_WIDTH = 106;
const RANKED_HEIGHT = 22;

function rankedLayout(field, width, order) {
  const columns = Math.max(1, Math.floor(width / RANKED_WIDTH));
  const places = new Map(order.map((name, rank) => [name, { x: 2 + (rank % columns) * RANKED_WIDTH, y: 2 + Math.floor(rank / columns) * RANKED_HEIGHT }]));
  return {
    order,
    columns,
    pitch: RANKED_HEIGHT,
    thumb: 18,
    width: columns * RANKED_WIDTH,
    height: Math.max(2, Math.ceil(order.length / columns) * RANKED_HEIGHT + 4),
    place: (layer, head) => places.get(layer * field.heads + head) ?? null,
  };
}

function rankedAt(field, layout, x, y) {
  const [column, row] = [Math.floor((x - 2) / RANKED_WIDTH), Math.floor((y - 2) / RANKED_HEIGHT)];
  const name = column < 0 || column >= layout.columns ? undefined : layout.order[row * layout.columns + column];
  return name === undefined ? null : { layer: Math.floor(name / field.heads), head: name % field.heads };
}

// One step with the arrow keys among ranked heads; from a head that is filtered out, to the first one.
function rankedStep(field, layout, { layer, head }, down, right, end) {
  const last = layout.order.length - 1;
  if (last < 0) return null;
  const rank = layout.order.indexOf(layer * field.heads + head);
  const wanted = rank < 0 ? 0 : end === "first" ? 0 : end === "last" ? last : rank + right + down * layout.columns;
  const name = layout.order[Math.max(0, Math.min(last, wanted))];
  return { layer: Math.floor(name / field.heads), head: name % field.heads };
}

function drawRankedName(context, field, view, name, { x, y }, score, colours) {
  const [layer, head] = [Math.floor(name / field.heads), name % field.heads];
  const chosen = layer === view.layer && head === view.head;
  context.font = gridFont(colours, chosen);
  context.fillStyle = chosen ? colours.accent : colours.ink2;
  context.textAlign = "left";
  context.fillText(`L${layer} H${head}`, x + 25, y + 13);
  context.textAlign = "right";
  context.fillStyle = colours.ink;
  context.font = gridFont(colours);
  context.fillText(scoreText(field, view.grid, score), x + RANKED_WIDTH - 8, y + 13);
}
