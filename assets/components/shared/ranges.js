// A range with its name before it and its value in words after it, for what is worked out in the browser.

// labelledRange({name, low, high, log, whole, write, hear}): {node, input, show(value)}. `log` spreads ratios evenly over the track;
// `whole` keeps integers. hear(value) is called while the thumb moves; show(value) sets the thumb and the words without calling it.
const RANGE_STEPS = 1000;

function labelledRange({ name, low, high, log = false, whole = false, write, hear, label = name }) {
  const fine = log || !whole;
  const place = (value) => (!fine ? value : Math.round(RANGE_STEPS * (log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low))));
  const valueAt = (at) => {
    if (!fine) return at;
    const share = at / RANGE_STEPS;
    const exact = log ? low * (high / low) ** share : low + (high - low) * share;
    return whole ? Math.round(exact) : Number(exact.toPrecision(4));
  };
  const input = element("input", { type: "range", min: fine ? 0 : low, max: fine ? RANGE_STEPS : high, step: 1, "aria-label": label });
  const words = element("span", { class: "range-value number" });
  const node = element("label", { class: "labelled-range" }, element("span", { class: "range-name" }, name), words, input);
  const tell = (value) => {
    const text = write(value);
    words.replaceChildren(...[text].flat());
    input.setAttribute("aria-valuetext", words.textContent);
  };
  input.oninput = () => {
    const value = valueAt(Number(input.value));
    tell(value);
    hear(value);
  };
  const show = (value) => {
    input.value = place(value);
    tell(value);
  };
  return { node, input, show };
}
