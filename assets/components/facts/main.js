// Rows of a label, a value and a note.

export default function ({ data, parentElement }) {
  const { facts } = unpack(data).meta;
  const rows = facts.map(({ label, value, note }) =>
    element("div", { class: "fact" }, element("dt", {}, label), element("dd", {}, element("span", { class: "value" }, value), note ? element("span", { class: "note" }, note) : null)),
  );
  parentElement.querySelector(".gb").replaceChildren(element("dl", { class: "facts" }, rows));
}
