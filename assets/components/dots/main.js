// Logits as dot products: the likeliest next tokens after the selected position, each product beside the model's own logit.

export default function ({ data, parentElement }) {
  const host = parentElement.querySelector(".gb");
  const { meta, arrays } = unpack(data);
  const state = mounted(parentElement, () => ({ position: dotsFromUrl(meta.url), stop: null }));
  state.stop?.();
  const title = element("div", { class: "note dots-title", "aria-live": "polite" });
  const table = element("table", { class: "dots" });
  host.replaceChildren(title, table);

  function draw() {
    const count = meta.ids.length;
    const at = state.position == null || state.position < 0 || state.position >= count ? count - 1 : state.position;
    const [candidates, product, logit, normed, row] = arrays;
    const kept = candidates.shape[1];
    const follows = at + 1 < count ? meta.ids[at + 1] : null;
    const rows = Array.from({ length: kept }, (_, k) => at * kept + k)
      .filter((index) => candidates.data[index] >= 0)
      .map((index) => ({ id: candidates.data[index], product: product.data[index], logit: logit.data[index], length: row.data[index] }));
    title.replaceChildren(...dotsTitle(meta, at, normed.data[at]));
    table.replaceChildren(dotsHead(meta), element("tbody", {}, rows.map((entry) => dotsRow(meta, entry, normed.data[at], follows))));
  }

  draw();
  if (meta.url) state.stop = onView(meta.url, (position) => ((state.position = position), draw()));
  return () => {
    state.stop?.();
    unmount(parentElement);
  };
}

function dotsFromUrl(name) {
  const position = name ? Number.parseInt(viewFromUrl([name])[name], 10) : NaN;
  return Number.isInteger(position) ? position : null;
}

function dotsTitle(meta, at, length) {
  const token = element("span", { class: "token" }, tokenSpans(meta.pieces[at]));
  return ["After position ", element("b", {}, String(at)), ", ", token, ": h is ", element("b", { class: "number" }, decimals(length, 3)), " long"];
}

function dotsHead(meta) {
  const heading = (text, mark, kind = "") => element("th", { scope: "col", class: kind }, mark ? element("i", { class: `mark ${mark}`, "aria-hidden": "true" }) : null, text);
  const product = meta.transformed ? "from h · w" : "h · w";
  return element("thead", {}, element("tr", {}, heading("next token", "", "first"), heading("|w|", "", "wide"), heading("cos θ", "", "wide"), heading(product, "ring"), heading("logit", "disc"), heading("difference", "")));
}

function dotsRow(meta, { id, product, logit, length }, normed, follows) {
  const number = (text, kind = "") => element("td", { class: `number ${kind}` }, text);
  const parts = meta.vocabulary[id];
  const cosine = product / (normed * length);
  return element(
    "tr",
    { class: id === follows ? "in-text" : null, title: id === follows ? "the next token of the prompt" : null, "data-id": id },
    element("th", { scope: "row", title: flatToken(parts) }, tokenText(parts)),
    number(decimals(length, 3), "wide"),
    number(meta.transformed ? "–" : decimals(cosine, 4), "wide"),
    number(decimals(product, 5)),
    number(decimals(logit, 5)),
    number(logit === product ? "0" : signed(logit - product), "difference"),
  );
}

const signed = (x) => (x > 0 ? "+" : "") + scientific(x, 1);
