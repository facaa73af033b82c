// Speculative decoding, a row for each pass of the target: drafts kept, the one rejected, those nobody looked at, and its own token.

export default function ({ data, parentElement }) {
  const { meta, arrays } = unpack(data);
  const [numbers] = arrays; // (drafts looked at, 3): p, q and the uniform number
  let at = 0;
  const rows = meta.rounds.map((round, index) => {
    const drafts = round.drafts.map((token, k) => {
      const seen = k < round.seen;
      const [p, q, u] = seen ? [0, 1, 2].map((column) => numbers.data[3 * at + column]) : [];
      if (seen) at += 1;
      return draftChip(meta.vocabulary[token], seen ? { p, q, u, kept: k < round.kept } : null);
    });
    return roundRow(index, round, drafts, meta.vocabulary);
  });
  const legend = element("p", { class: "note key" }, keyed("kept", "draft kept"), keyed("rejected", "rejected"), keyed("unread", "after a rejection, not looked at"), keyed("own", "the target’s own token"));
  const text = element("p", { class: "spoken" }, element("span", {}, meta.text));
  const list = element("div", { class: "rounds", role: "list", tabindex: 0, "aria-label": "passes of the target" }, rows);
  parentElement.querySelector(".gb").replaceChildren(legend, list, text);
}

const keyed = (kind, words) => element("span", { class: "keyed" }, element("span", { class: `draft ${kind}`, "aria-hidden": "true" }, element("span", { class: "what" }, "ab")), words);

function draftChip(parts, looked) {
  const kind = looked === null ? "unread" : looked.kept ? "kept" : "rejected";
  const name = flatToken(parts);
  const verdict = looked === null ? "not looked at" : `${kind}: u ${decimals(looked.u, 4)} × q ${decimals(looked.q, 4)} ${looked.kept ? "<" : "≥"} p ${decimals(looked.p, 4)}`;
  return element(
    "span",
    { class: `draft ${kind}`, title: `${name}, ${verdict}` },
    element("span", { class: "what" }, tokenText(parts)),
    element("span", { class: "unseen" }, `, ${kind}`),
    looked === null ? null : element("span", { class: "figures number" }, `p ${short(looked.p)}`, element("br"), `q ${short(looked.q)}`, element("br"), `u ${short(looked.u)}`),
  );
}

const short = (x) => (x > 0 && x < 0.005 ? "<.01" : x.toFixed(2));

function roundRow(index, round, drafts, vocabulary) {
  const grew = round.kept + 1;
  const own = element(
    "span",
    { class: "draft own", title: round.replaced ? "drawn from max(p − q, 0) in place of the rejected one" : "drawn from the target after all drafts were kept" },
    element("span", { class: "what" }, tokenText(vocabulary[round.token])),
    element("span", { class: "figures" }, round.replaced ? "instead" : drafts.length ? "one more" : "no draft"),
  );
  return element(
    "div",
    { class: "round", role: "listitem", "data-kept": round.kept },
    element("span", { class: "pass" }, String(index)),
    element("span", { class: "drafts" }, drafts, own),
    element("span", { class: "number grew" }, `+${grew}`),
    element("span", { class: "number took" }, `${decimals(round.draft_s * 1000, 1)} + ${decimals(round.target_s * 1000, 1)} ms`),
  );
}
