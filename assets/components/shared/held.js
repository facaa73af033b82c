// What one payload brings for another component, held in the browser until that one asks for it. All modules of a page share the map;
// the component `held`, which draws nothing, fills it.

const HELD = (globalThis[Symbol.for("glassbox held")] ??= new Map());
const HELD_BYTES = 24 * 2 ** 20;

// Keeps a payload, unpacked, under the name in its header; the oldest leave where all together are too large.
function holdForOthers(given) {
  const size = ({ arrays }) => arrays.reduce((sum, { data }) => sum + data.byteLength, 0);
  HELD.delete(given.meta.name);
  HELD.set(given.meta.name, given);
  let total = [...HELD.values()].reduce((sum, one) => sum + size(one), 0);
  for (const [name, one] of HELD) {
    if (total <= HELD_BYTES || one === given) break;
    total -= size(one);
    HELD.delete(name);
  }
  window.dispatchEvent(new CustomEvent("glassbox:held", { detail: given.meta.name }));
}

const heldForMe = (name) => HELD.get(name);

// Calls hear() when anything new is held; returns the function that stops it.
function onHeld(hear) {
  window.addEventListener("glassbox:held", hear);
  return () => window.removeEventListener("glassbox:held", hear);
}

// Calls hear() when the page's button of this key is pressed, by pointer or key, before the page has run.
function onPress(key, hear) {
  const listen = ({ target }) => {
    const button = target instanceof Element ? target.closest(`.st-key-${key} button`) : null;
    if (button && !button.disabled) hear();
  };
  document.addEventListener("click", listen, true);
  return () => document.removeEventListener("click", listen, true);
}
