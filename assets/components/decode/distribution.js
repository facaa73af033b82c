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
  const text = flatToken(vocabulary[token]);
  const name = element("span", { class: "name", title: text }, tokenText(vocabulary[token]));
  if (chosen) name.append(element("span", { class: "unseen" }, ", chosen"));
  const rank = element("span", { class: "rank" }, `rank ${groupDigits(step.rank + 1)}`);
  const cells = [
    element("span", { role: "cell", class: "token-cell" }, name, chosen && step.rank > index ? rank : null),
    barCell(raw),
    barCell(after, chosen && step.forced ? "by hand" : "removed"),
  ];
  const data = { class: chosen ? "row chosen" : "row", "data-token": token };
  if (chosen) return element("div", { ...data, role: "row", "aria-current": "true" }, cells);
  const button = element("button", { ...data, type: "button", title: "choose this token instead" }, cells);
  const now = after > 0 ? decimals(after, 4) : "removed";
  button.setAttribute("aria-label", `${text}: ${decimals(raw, 4)} before, ${now} after; choose it instead`);
  button.onclick = () => choose(token);
  return element("div", { role: "row" }, button);
}

// A probability as a bar and a number; what the sampler took away is a short hatch and `gone`.
function barCell(mass, gone = "removed") {
  const bar = mass > 0 ? probabilityBar(mass) : element("span", { class: "track gone" }, element("i"));
  const number = element("span", { class: mass > 0 ? "number" : "number quiet" }, mass > 0 ? decimals(mass, 4) : gone);
  return element("span", { role: "cell", class: "bar-cell" }, bar, number);
}

function probabilityBar(mass) {
  return element("span", { class: "track" }, element("i", { style: `width:${Math.max(0.5, 100 * mass)}%` }));
}

function restRow(step, others) {
  const name = element("span", { role: "cell", class: "name" }, `${groupDigits(others)} others`);
  return element(
    "div",
    { class: "row rest", role: "row" },
    name,
    step.rest.map((mass) => barCell(mass)),
  );
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
      element(
        "span",
        { class: "mass", "aria-hidden": "true" },
        element("i", { style: `width:${100 * (1 - removed)}%` }),
      ),
    ),
  );
  const first = element(
    "div",
    { class: "stage", role: "listitem" },
    element("span", { class: "stage-name" }, "softmax"),
    element("span", { class: "number" }, `${groupDigits(step.vocabulary)} tokens`),
  );
  const nothing = rows.length
    ? []
    : [element("p", { class: "note" }, "No filter is on: the token is drawn from the model's own distribution.")];
  return element("div", { class: "stages", role: "list" }, first, rows, nothing);
}
