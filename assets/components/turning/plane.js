// The plane of one pair: q and k as the model made them, and as their positions have turned them.

function drawPlane(canvas, size, { q, k, turnedQ, turnedK, theta, m, n }, colours) {
  const pen = fitCanvas(canvas, size, size);
  const longest = Math.max(Math.hypot(...q), Math.hypot(...k), Math.hypot(...turnedQ), Math.hypot(...turnedK)) || 1;
  const centre = size / 2;
  const unit = (size / 2 - 34) / longest;
  const place = ([a, b]) => [centre + unit * a, centre - unit * b];
  pen.font = `12px ${colours.sans}`;
  pen.textBaseline = "middle";
  planeAxes(pen, size, colours);
  for (const [vector, colour] of [
    [q, colours.accent],
    [k, colours.ink],
  ]) {
    pen.strokeStyle = colours.hairline;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.arc(centre, centre, unit * Math.hypot(...vector), 0, 2 * Math.PI);
    pen.stroke();
    planeSweep(pen, centre, vector, vector === q ? m : n, theta, unit, colour);
  }
  planeVector(pen, centre, place(q), "q", { colour: colours.rule, tip: colours.measured, solid: true }, colours);
  planeVector(pen, centre, place(k), "k", { colour: colours.rule, tip: colours.measured, solid: true }, colours);
  planeVector(pen, centre, place(turnedK), "k′", { colour: colours.ink, tip: colours.ink, width: 2 }, colours);
  planeVector(pen, centre, place(turnedQ), "q′", { colour: colours.accent, tip: colours.accent, width: 2 }, colours);
}

function planeAxes(pen, size, colours) {
  pen.strokeStyle = colours.rule;
  pen.lineWidth = 1;
  const centre = Math.round(size / 2) + 0.5;
  plotSegment(pen, 8, centre, size - 8, centre);
  plotSegment(pen, centre, 8, centre, size - 8);
  pen.fillStyle = colours.ink3;
  pen.textAlign = "right";
  pen.fillText("a", size - 8, centre + 10);
  pen.textAlign = "left";
  pen.fillText("b", centre + 7, 12);
}

// The angle that was added, drawn out from the vector's own direction; whole turns are left to the words.
function planeSweep(pen, centre, [a, b], position, theta, unit, colour) {
  const start = Math.atan2(b, a);
  const angle = (position * theta) % (2 * Math.PI);
  const radius = Math.max(14, unit * Math.hypot(a, b) * 0.45);
  pen.globalAlpha = 0.5;
  pen.strokeStyle = colour;
  pen.lineWidth = 1.25;
  pen.beginPath();
  pen.arc(centre, centre, radius, -start, -(start + angle), angle > 0);
  pen.stroke();
  pen.globalAlpha = 1;
}

function planeVector(pen, centre, [x, y], name, { colour, tip, width = 1, solid = false }, colours) {
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  plotSegment(pen, centre, centre, x, y);
  if (solid) {
    pen.fillStyle = tip;
    pen.beginPath();
    pen.arc(x, y, 4, 0, 2 * Math.PI);
    pen.fill();
  } else plotRing(pen, x, y, 4.5, tip, colours);
  const away = Math.hypot(x - centre, y - centre) || 1;
  pen.font = `500 13px ${colours.sans}`;
  pen.textAlign = "center";
  plotHalo(pen, name, x + (14 * (x - centre)) / away, y + (14 * (y - centre)) / away, solid ? tip : colour, colours);
}
