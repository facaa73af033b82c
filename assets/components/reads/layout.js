// Which heads are shown in which order, and where their cells are.

const READS = { axis: 58, top: 12, labels: 150, under: 30, least: 2, mostColumn: 26, mostRow: 14, tall: 460, mostRows: 1024 };

// The rows, each a head: all of them, or those of one layer.
function readsRows(reads, { layer, order }) {
  const rows = [];
  for (let l = 0; l < reads.layers; l++) {
    if (layer !== null && l !== layer) continue;
    for (let h = 0; h < reads.heads; h++) rows.push(l * reads.heads + h);
  }
  const measure = reads.measures.indexOf(order);
  if (measure < 0) return rows;
  const value = (row) => reads.scores[row * reads.measures.length + measure];
  return rows.sort((a, b) => value(b) - value(a) || a - b);
}

function readsLayout(reads, rows, hostWidth, labelLength) {
  const room = Math.max(120, hostWidth - READS.axis - 2);
  const merged = Math.max(1, Math.ceil((reads.columns * READS.least) / room));
  const count = Math.ceil(reads.columns / merged);
  const column = Math.min(READS.mostColumn, Math.max(1, Math.floor(room / count)));
  const row = Math.max(1, Math.min(READS.mostRow, Math.floor(READS.tall / rows.length)));
  const factor = merged * reads.pooled;
  const top = READS.top + (factor > 1 ? 14 : Math.min(READS.labels, labelLength));
  return { merged, factor, count, column, row, top, width: count * column, bottom: top + row * rows.length, height: top + row * rows.length + READS.under };
}

// The largest weight of a cell; NaN where the head can read none of its positions.
function cellWeight(reads, layout, head, column) {
  let largest = NaN;
  const end = Math.min(reads.columns, (column + 1) * layout.merged);
  for (let at = column * layout.merged; at < end; at++) {
    const weight = reads.weights[head * reads.columns + at];
    if (!(weight <= largest)) largest = Number.isNaN(weight) ? largest : weight;
  }
  return largest;
}

const cellPositions = (reads, layout, column) => [column * layout.factor, Math.min(reads.positions, (column + 1) * layout.factor) - 1];

const headOf = (reads, index) => ({ layer: Math.floor(index / reads.heads), head: index % reads.heads });
