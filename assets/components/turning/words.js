// The same rotation in words: which dims, as a matrix, as a complex product, and what the pair adds to q . k.

const turnNumber = (x) => decimals(x, 4);
const turnBold = (text) => element("b", { class: "number" }, text);

// Both layouts of a head's dims, the pair's two marked in each; the one that is read is named.
function dimsRows(view, count, pairs) {
  const rows = [
    ["half-split", view.pair, view.pair + pairs, `dims ${view.pair} and ${view.pair + pairs}: how this model runs`],
    ["interleaved", 2 * view.pair, 2 * view.pair + 1, `dims ${2 * view.pair} and ${2 * view.pair + 1}: the layout of RoFormer`],
  ];
  return rows.map(([name, first, second, words]) => {
    const cells = Array.from({ length: count }, (_, dim) => element("i", { class: dim === first || dim === second ? "on" : dim >= 2 * pairs ? "still" : null }));
    const reads = name === view.pairing;
    return element(
      "div",
      { class: reads ? "dims read" : "dims" },
      element("span", { class: "note" }, element("b", {}, name), ` ${words}`),
      element("div", { class: "cells", "aria-hidden": "true" }, cells),
    );
  });
}

// [a'; b'] = R [a; b] with numbers.
function matrixWords(name, position, [a, b], [c, d], theta, factor) {
  const [cos, sin] = [factor * Math.cos(position * theta), factor * Math.sin(position * theta)];
  const column = (...values) => element("span", { class: "matrix one" }, values.map((value) => element("span", { class: "number" }, turnNumber(value))));
  const matrix = element("span", { class: "matrix two" }, [cos, -sin, sin, cos].map((value) => element("span", { class: "number" }, turnNumber(value))));
  return element("div", { class: "equation" }, element("span", { class: "of" }, `${name}′`), column(c, d), "=", matrix, column(a, b));
}

// (a + bi) e^(i m theta) = a' + b'i, with length and angles.
function complexWords(name, letter, position, [a, b], [c, d], theta, factor) {
  const sign = (value) => (value < 0 ? "− " : "+ ") + turnNumber(Math.abs(value));
  const scale = factor === 1 ? "" : ` · ${turnNumber(factor)}`;
  const angle = position * theta;
  return element(
    "div",
    { class: "complex number" },
    `${name}′ = (${turnNumber(a)} ${sign(b)}i) · e`,
    element("sup", {}, `i${letter}θ`),
    `${scale} = ${turnNumber(c)} ${sign(d)}i`,
    element("span", { class: "note" }, `${letter}θ = ${shownPosition(position)} · ${significant(theta, 4)} = ${significant(angle, 4)} rad, ${significant(angle / (2 * Math.PI), 3)} turns; |${name}| = ${turnNumber(Math.hypot(a, b))}`),
  );
}

const shownPosition = (position) => (Number.isInteger(position) ? groupDigits(position) : decimals(position, 1));

function contributionWords(share, whole, view, locked) {
  return [
    "This pair adds ",
    turnBold(turnNumber(share)),
    " to q′ · k′ = ",
    turnBold(turnNumber(whole)),
    ` at m − n = ${shownPosition(view.m - view.n)}${locked ? ", which stays while both move" : ""}.`,
  ];
}
