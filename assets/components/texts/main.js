// Continuations beside one another: what all have in common is quiet, what is each one's own is not.

export default function ({ data, parentElement }) {
  const { texts } = unpack(data).meta;
  const rows = texts.map(({ label, note, same, own }) =>
    element(
      "div",
      { class: "version" },
      element("dt", {}, label, note ? element("span", { class: "note number" }, note) : null),
      element("dd", {}, element("span", { class: "same" }, same), element("span", { class: "own" }, own)),
    ),
  );
  parentElement.querySelector(".gb").replaceChildren(element("dl", { class: "versions" }, rows));
}
