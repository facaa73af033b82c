// One cursor over the steps of a run for all components of a page. Who moves it tells the address with viewToUrl; a component that
// needs Python for another step asks for it, a moment after the cursor has come to rest and only while it can be seen.

const CURSOR_RESTS_MS = 250;

// `shown`: {step, of}, the step that the component's payload holds and how many steps there are. `ask(answer)` sends to Python.
// Returns {node, stop}: a range that moves the cursor, and the function that stops all of it.
function stepCursor(host, name, shown, ask) {
  const last = shown.of - 1;
  const placed = (value) => (value === null || value === undefined || value === "" || !(Number(value) < last) ? last : Math.max(0, Number(value)));
  const range = element("input", { type: "range", min: 0, max: Math.max(0, last), step: 1, "aria-label": "step looked at" });
  const text = element("span", { class: "number" });
  const node = element("label", { class: "step-cursor" }, element("span", { class: "caption" }, "Step"), text, range);
  range.disabled = last < 1;
  let wanted = shown.step;
  let asked = null;
  let seen = false;
  let timer = 0;

  function place(step) {
    wanted = step;
    range.value = step;
    text.textContent = `${step} of ${last}`;
    window.clearTimeout(timer);
    timer = window.setTimeout(settle, CURSOR_RESTS_MS);
  }
  function settle() {
    if (!seen || wanted === shown.step || wanted === asked) return;
    asked = wanted;
    ask({ step: wanted, of: shown.of, when: Date.now() });
  }

  range.oninput = () => {
    place(Number(range.value));
    viewToUrl({ [name]: wanted === last ? null : wanted });
  };
  place(shown.step);
  // What the address says when this payload has come in is what the page's other components show.
  const first = window.setTimeout(() => place(placed(viewFromUrl([name])[name])), 2 * ADDRESS_AFTER_MS);
  const observer = new IntersectionObserver(([entry]) => {
    seen = entry.isIntersecting;
    if (seen) settle();
  });
  observer.observe(host);
  const stopHearing = onView(name, (value) => {
    window.clearTimeout(first);
    if (placed(value) !== wanted) place(placed(value));
  });
  const stop = () => {
    window.clearTimeout(timer);
    window.clearTimeout(first);
    observer.disconnect();
    stopHearing();
  };
  return { node, stop };
}
