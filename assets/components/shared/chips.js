// Tokens as they are shown everywhere. Parts are [kind, text], made from the token's bytes by figures/tokens.py.

const PLATES = new Set(["byte", "special", "mark"]);

// One line of plain text for axes and labels: plates become ‹E2›.
const flatToken = (parts) => parts.map(([kind, text]) => (PLATES.has(kind) ? `‹${text}›` : text)).join("");

const tokenSpans = (parts) => parts.map(([kind, text]) => element("span", { class: `part-${kind}` }, text));

const tokenText = (parts) => element("span", { class: "token" }, tokenSpans(parts));

// The house's token: position over text over an underline; what hangs below it is the caller's to append.
function tokenChip(parts, position, choose) {
  const label = `position ${position}, ${flatToken(parts)}`;
  return element(
    "button",
    { class: "chip", type: "button", "data-position": position, "aria-label": label, onclick: () => choose(position) },
    element("span", { class: "chip-position", "aria-hidden": "true" }, String(position)),
    element("span", { class: "chip-text", "aria-hidden": "true" }, tokenSpans(parts)),
  );
}

// A strip of chips, each with a needle, built once and then only updated. Long strips wrap and scroll within themselves on a
// wide page, and run sideways on a phone. Arrow keys, Home and End walk along it; only the current chip is a tab stop.
//   node: what goes into the page
//   update({current, key, needle}): needle(position) is {kind: "loss" | "weight" | "masked" | "none", height, title}
function chipStrip(allParts, label, choose) {
  const chips = allParts.map((parts, position) => tokenChip(parts, position, choose));
  const needles = chips.map((chip) => chip.appendChild(element("span", { class: "needle", "aria-hidden": "true" }, element("i"))));
  const node = element("div", { class: "chips scrolls", role: "group", "aria-label": label }, chips);
  const shown = chips.map(() => ""); // what hangs below each chip, so that only what changes is touched
  for (const chip of chips) chip.tabIndex = -1;
  let current = -1;
  let read = -1;

  // A column that narrows and a font that arrives wrap the strip anew.
  const keepInSight = () => chips[current] && reveal(node, chips[current]);
  onWidth(node, keepInSight);
  whenFontsLoad(keepInSight);

  node.onkeydown = (event) => {
    const last = chips.length - 1;
    const keys = { ArrowLeft: current - 1, ArrowUp: current - 1, ArrowRight: current + 1, ArrowDown: current + 1, Home: 0, End: last };
    if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const position = Math.max(0, Math.min(last, keys[event.key]));
    choose(position);
    chips[position].focus({ preventScroll: true });
  };

  function update({ current: position, key = -1, needle }) {
    if (position !== current) {
      chips[current]?.removeAttribute("aria-current");
      if (current >= 0) chips[current].tabIndex = -1;
      chips[position].setAttribute("aria-current", "true");
      chips[position].tabIndex = 0;
      reveal(node, chips[position]);
    }
    chips[read]?.classList.remove("key");
    chips[key]?.classList.add("key");
    [current, read] = [position, key];
    chips.forEach((chip, index) => {
      const { kind, height = 0, title = "" } = needle(index);
      const now = `${kind} ${height} ${title}`;
      if (now === shown[index]) return;
      shown[index] = now;
      needles[index].className = `needle ${kind}`;
      needles[index].firstChild.style.height = `${height}px`;
      chip.title = title;
    });
  }
  return { node, update };
}

// Scrolls a strip, and only the strip, so that the chip can be seen.
function reveal(strip, chip) {
  const { offsetLeft: left, offsetTop: top } = chip;
  if (left < strip.scrollLeft || left + chip.offsetWidth > strip.scrollLeft + strip.clientWidth)
    strip.scrollLeft = left - strip.clientWidth / 2;
  if (top < strip.scrollTop || top + chip.offsetHeight > strip.scrollTop + strip.clientHeight)
    strip.scrollTop = top;
}
