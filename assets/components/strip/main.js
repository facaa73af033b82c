// The prompt as a strip of tokens with the loss of each, and what the model expected after the selected one.

const NEEDLE_HEIGHT = 22;

export default function ({ data, parentElement, setStateValue }) {
  const host = parentElement.querySelector(".gb");
  const { meta, arrays } = unpack(data);
  const strip = readStrip(meta, arrays);
  const fromUrl = () => (meta.url ? Number.parseInt(viewFromUrl([meta.url])[meta.url], 10) : NaN);

  const state = mounted(parentElement, () => ({ position: fromUrl(), given: null, stop: null }));
  // Another prompt length starts at its own selection, and whoever shows the same position has to hear of it.
  const renewed = state.given !== null && state.given !== meta.selected;
  if (!Number.isInteger(state.position) || renewed) state.position = meta.selected;
  state.given = meta.selected;
  state.position = Math.max(0, Math.min(strip.length - 1, state.position));
  if (renewed && meta.url) viewToUrl({ [meta.url]: state.position });

  const chips = chipStrip(meta.tokens, "the prompt's tokens", select);
  if (meta.below) writeBelow(chips.node, meta.below);
  const reading = element("div", { class: "note reading", "aria-live": "polite" });
  const expected = element("div", { class: "rows" });
  host.replaceChildren(
    element(
      "div",
      { class: "strip" },
      element("div", {}, legend(strip), chips.node, reading),
      element("div", {}, element("div", { class: "caption" }, "Next token, measured"), expected),
    ),
  );

  function select(position) {
    state.position = position;
    viewToUrl(meta.url ? { [meta.url]: position } : {}, () => meta.tell && setStateValue("position", state.position));
    draw();
  }

  function draw() {
    chips.update({ current: state.position, needle: (position) => lossNeedle(strip, position) });
    reading.replaceChildren(...readingOf(strip, state.position));
    expected.replaceChildren(...expectedAfter(strip, state.position));
  }

  // Another component of the page chose the position.
  function follow(position) {
    if (position === state.position || !(position >= 0 && position < strip.length)) return;
    state.position = position;
    draw();
  }

  draw();
  state.stop?.();
  state.stop = meta.url ? onView(meta.url, follow) : null;
  return () => {
    state.stop?.();
    unmount(parentElement);
  };
}

// Under each token: its id, and the character that it shares with its neighbours.
function writeBelow(node, texts) {
  node.classList.add("with-ids");
  node.querySelectorAll(".chip-text").forEach((text, position) => text.after(element("span", { class: "chip-id" }, texts[position])));
}

function readStrip(meta, [loss, rank, topIds, topProbs]) {
  const kept = topIds.shape[1];
  const known = [...loss.data].filter(Number.isFinite);
  return {
    ...meta,
    length: meta.tokens.length,
    loss: loss.data,
    rank: rank.data,
    largestLoss: Math.max(1e-9, ...known),
    top: (position) =>
      Array.from({ length: kept }, (_, k) => ({
        id: topIds.data[position * kept + k],
        probability: topProbs.data[position * kept + k],
      })),
  };
}

function legend(strip) {
  const largest = strip.length > 1 ? `, the longest bar ${decimals(strip.largestLoss, 2)}` : "";
  return element("div", { class: "note legend" }, element("i", { class: "loss" }), `loss of the token, nats${largest}; click a token to read it`);
}

function lossNeedle(strip, position) {
  const loss = strip.loss[position];
  if (Number.isNaN(loss)) return { kind: "none" };
  const share = Number.isFinite(loss) ? loss / strip.largestLoss : 1;
  return { kind: "loss", height: Math.max(1, share * NEEDLE_HEIGHT), title: `loss ${decimals(loss, 2)} nats` };
}

// A sentence: position, id, bytes, the character they belong to, loss, probability, rank.
function readingOf(strip, position) {
  const bold = (text, kind = "") => element("b", { class: `number ${kind}` }, text);
  const out = ["Position ", bold(String(position)), ", id ", bold(groupDigits(strip.ids[position]))];
  if (strip.special[position]) out.push(", a special token");
  else if (strip.bytes[position]) out.push(", bytes ", element("b", { class: "hex" }, strip.bytes[position]));
  if (strip.characters[position]) out.push(", part of ", element("b", {}, strip.characters[position]));
  const loss = strip.loss[position];
  if (Number.isNaN(loss)) return [...out, ": nothing predicted it."];
  const rank = `${groupDigits(strip.rank[position])} of ${groupDigits(strip.vocab_size)}`;
  out.push(". Loss ", bold(decimals(loss, 2), "measured"), " nats: the model gave it probability ", bold(decimals(Math.exp(-loss), 3)));
  return [...out, ", rank ", bold(rank), "."];
}

// The most probable tokens; the one that the text goes on with is in ink, and added below if it is not among them.
function expectedAfter(strip, position) {
  const follows = position + 1 < strip.length ? strip.ids[position + 1] : null;
  const top = strip.top(position);
  const rows = top.map(({ id, probability }) => expectedRow(strip.vocabulary[id], probability, id === follows));
  if (follows !== null && top.every(({ id }) => id !== follows)) {
    const probability = Math.exp(-strip.loss[position + 1]);
    rows.push(expectedRow(strip.tokens[position + 1], probability, true, `rank ${groupDigits(strip.rank[position + 1])}`));
  }
  return rows;
}

function expectedRow(parts, probability, inText, rank = "") {
  return element(
    "div",
    { class: `row${inText ? " in-text" : ""}${rank ? " below" : ""}`, title: inText ? "the next token of the prompt" : null },
    element("span", { class: "name", title: flatToken(parts) }, tokenText(parts)),
    element("span", { class: "track" }, element("i", { style: `width:${Math.max(0.4, probability * 100)}%` }), rank ? element("span", { class: "rank" }, rank) : null),
    element("span", { class: "number" }, decimals(probability, 3)),
  );
}
