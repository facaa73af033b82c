// The likeliest tokens of a step, each with its probability before and after the sampler, side by side.

// `choose(token)` asks for that token instead of the one that was drawn.
function distributionTable(step, vocabulary, choose) {
  const rows = step.listed.map((entry, index) => distributionRow(step, entry, index, vocabulary, choose));
  const others = step.vocabulary - step.listed.length;
  return element(
    "div",
    { class: "distribution", role: "table", "aria-label": "likeliest tokens before and after the sampler" },
    element(
      "div",
      { class: "row head caption", role: "row" },
      element("span", { role: "columnheader" }, "Token"),
      element("span", { role: "columnheader" }, "Model"),
      element("span", { role: "columnheader" }, "After the sampler"),
    ),
    rows,
    others > 0 ? restRow(step, others) : null,
  );
}

function distributionRow(step, { token, raw, after }, index, vocabulary, choose) {
  const chosen = token === step.token;
  const parts = vocabulary[token] ?? [];
  const text = flatToken(parts);
  const name = element("span", { class: "name", title: text }, tokenText(parts), index >= 0 && chosen ? element("span", { class: "unseen" }, ", chosen") : null);
  const late = chosen && step.rank >= index + 1 ? element("span", { class: "rank" }, `rank ${groupDigits(step.rank + 1)}`) : null;
  const cells = [
    element("span", { role: "cell", class: "token-cell" }, name, late),
    element("span", { role: "cell", class: "bar-cell" }, probabilityBar(raw), element("span", { class: "number" }, decimals(raw, 4))),
    afterCell(after, chosen && step.forced),
  ];
  const kind = `row${chosen ? " chosen" : ""}${after > 0 ? "" : " removed"}`;
  if (chosen) return element("div", { class: kind, role: "row", "aria-current": "true", "data-token": token }, cells);
  const button = element("button", { type: "button", class: kind, "data-token": token, title: "choose this token instead", onclick: () => choose(token) }, cells);
  button.setAttribute("aria-label", `${text}: ${decimals(raw, 4)} before, ${after > 0 ? decimals(after, 4) : "removed"} after; choose it instead`);
  return element("div", { role: "row" }, button);
}

function afterCell(after, forced) {
  if (after > 0) return element("span", { role: "cell", class: "bar-cell" }, probabilityBar(after), element("span", { class: "number" }, decimals(after, 4)));
  const word = forced ? "by hand" : "removed";
  return element("span", { role: "cell", class: "bar-cell" }, element("span", { class: "track gone" }, element("i")), element("span", { class: "number quiet" }, word));
}

const probabilityBar = (probability) => element("span", { class: "track" }, element("i", { style: `width:${Math.max(probability > 0 ? 0.5 : 0, 100 * probability)}%` }));

function restRow(step, others) {
  const [raw, after] = step.rest;
  const bar = (mass) => element("span", { role: "cell", class: "bar-cell" }, probabilityBar(mass), element("span", { class: mass > 0 ? "number" : "number quiet" }, mass > 0 ? decimals(mass, 4) : "removed"));
  return element("div", { class: "row rest", role: "row" }, element("span", { role: "cell", class: "name" }, `${groupDigits(others)} others`), bar(raw), bar(after));
}

// What each filter of the sampler did, in the order in which it was applied.
function stageList(step) {
  const rows = step.stages.map(([label, kept, removed]) =>
    element(
      "div",
      { class: "stage", role: "listitem" },
      element("span", { class: "stage-name" }, label),
      element("span", { class: "number" }, `${groupDigits(kept)} kept`),
      element("span", { class: "number" }, removed > 0 ? `${decimals(removed, 4)} removed` : "0 removed"),
      element("span", { class: "mass", "aria-hidden": "true" }, element("i", { style: `width:${100 * (1 - removed)}%` })),
    ),
  );
  const first = element("div", { class: "stage", role: "listitem" }, element("span", { class: "stage-name" }, "softmax"), element("span", { class: "number" }, `${groupDigits(step.vocabulary)} tokens`));
  const nothing = rows.length ? [] : [element("p", { class: "note" }, "No filter is on: the token is drawn from the model's own distribution.")];
  return element("div", { class: "stages", role: "list" }, first, rows, nothing);
}
