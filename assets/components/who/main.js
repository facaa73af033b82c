// Who reads whom: query heads above, KV heads below, a lead from each query head to the one that it reads.

const WHO = { top: 26, gap: 124, pitch: 11, foot: 34, names: ["kv_h", "kv_k", "kv_d"] };
const WHO_RANGES = [
  ["heads", "Query heads H", 1, 128],
  ["shared", "KV heads K", 1, 128],
  ["dim", "Head dim Dh", 8, 256],
];

export default function ({ data, parentElement }) {
  const host = parentElement.querySelector(".gb");
  const { meta } = unpack(data);
  const state = mounted(parentElement, () => ({ from: null, query: null, stop: () => {} }));
  state.stop();
  const own = { heads: meta.heads, shared: meta.shared, dim: meta.dim };
  // Another model begins with its own numbers; the address, with those of whoever copied it.
  if (state.from === null) Object.assign(state, own, whoFromUrl());
  else if (state.from !== meta.name) Object.assign(state, own, { query: null });
  state.from = meta.name;

  const colours = themeColours(host);
  const canvas = element("canvas", { tabindex: 0, role: "application", "aria-label": "query heads and the KV heads that they read" });
  const scroller = element("div", { class: "who-scroll" }, canvas);
  const facts = element("div", { class: "who-facts" });
  const reading = element("div", { class: "note who-reading", "aria-live": "polite" });
  const ranges = WHO_RANGES.map(([key, name, low, high]) =>
    labelledRange({ name, low, high, whole: true, write: (value) => groupDigits(value), hear: (value) => set({ [key]: value }) }),
  );
  const back = element("button", { type: "button", class: "save-button", onclick: () => set({ ...own, query: null }) }, `As in ${meta.name}`);
  const saves = figureSaves("who-reads-whom", () => [canvas], () => whoRows(state), colours);
  const controls = element("div", { class: "who-controls" }, ranges.map(({ node }) => node));
  const root = element("div", { class: "who" }, controls, element("div", { class: "who-figure" }, scroller, facts), reading, element("div", { class: "who-foot" }, back, saves));
  host.replaceChildren(root);

  function set(change, tell = true) {
    Object.assign(state, change);
    if (state.query !== null && state.query >= state.heads) state.query = null;
    if (tell) {
      const same = state.heads === own.heads && state.shared === own.shared && state.dim === own.dim;
      const view = [state.heads, state.shared, state.dim];
      viewToUrl(Object.fromEntries(WHO.names.map((name, k) => [name, same ? null : view[k]])));
    }
    draw();
  }

  function draw() {
    if (!scroller.clientWidth) return;
    WHO_RANGES.forEach(([key], k) => ranges[k].show(state[key]));
    drawWho(canvas, scroller.clientWidth, state, colours);
    facts.replaceChildren(...whoFacts(state, meta));
    reading.replaceChildren(...whoReading(state));
    root.dataset.state = JSON.stringify({ heads: state.heads, shared: state.shared, dim: state.dim, query: state.query });
  }

  const headAt = (event) => {
    const place = whoPlaces(scroller.clientWidth, state);
    const x = event.clientX - canvas.getBoundingClientRect().left;
    const head = Math.round((x - place.left) / place.pitch - 0.5);
    return head >= 0 && head < state.heads ? head : null;
  };
  canvas.onpointermove = (event) => set({ query: headAt(event) }, false);
  canvas.onpointerleave = () => set({ query: null }, false);
  canvas.onkeydown = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    set({ query: state.query === null ? 0 : Math.max(0, Math.min(state.heads - 1, state.query + step)) }, false);
  };
  draw();
  whenFontsLoad(draw);
  state.stop = onWidth(root, draw);
  return () => {
    state.stop();
    unmount(parentElement);
  };
}

function whoFromUrl() {
  const view = viewFromUrl(WHO.names);
  const found = {};
  WHO_RANGES.forEach(([key, , low, high], k) => {
    const value = Number(view[WHO.names[k]]);
    if (Number.isInteger(value) && value >= low && value <= high) found[key] = value;
  });
  return found;
}

const evenly = ({ heads, shared }) => heads % shared === 0;

function whoPlaces(width, { heads, shared }) {
  const room = Math.max(width - 2, WHO.pitch * Math.max(heads, shared));
  const pitch = Math.min(44, room / Math.max(heads, Math.min(shared, heads)));
  return { pitch, left: Math.max(1, (room - pitch * heads) / 2), width: room };
}

function drawWho(canvas, width, state, colours) {
  const { heads, shared, query } = state;
  const place = whoPlaces(width, state);
  const pen = fitCanvas(canvas, Math.max(width, Math.ceil(place.width)), WHO.top + WHO.gap + WHO.foot);
  const fits = evenly(state);
  const group = fits ? heads / shared : null;
  const radius = Math.min(7, place.pitch * 0.36);
  const span = (place.pitch * heads) / shared;
  const queryX = (head) => place.left + place.pitch * (head + 0.5);
  const keyX = (head) => place.left + span * (head + 0.5);
  const read = query === null || !fits ? null : Math.floor(query / group);
  pen.lineWidth = 1;
  if (fits)
    for (let head = 0; head < heads; head++) {
      const mine = read !== null && Math.floor(head / group) === read;
      pen.strokeStyle = mine ? colours.accent : colours.rule;
      pen.globalAlpha = read === null || mine ? 1 : 0.35;
      plotSegment(pen, queryX(head), WHO.top + radius, keyX(Math.floor(head / group)), WHO.top + WHO.gap - 9);
    }
  pen.globalAlpha = 1;
  for (let head = 0; head < heads; head++) {
    const mine = read !== null && Math.floor(head / group) === read;
    plotRing(pen, queryX(head), WHO.top, radius, mine ? colours.accent : fits ? colours.ink2 : colours.rule, colours);
    if (head === query) {
      pen.strokeStyle = colours.ink;
      pen.lineWidth = 2;
      pen.beginPath();
      pen.arc(queryX(head), WHO.top, radius + 3, 0, 2 * Math.PI);
      pen.stroke();
    }
  }
  const size = Math.max(3, Math.min(13, span * 0.38));
  for (let head = 0; head < shared; head++) {
    pen.fillStyle = colours.accent;
    pen.strokeStyle = colours.rule;
    pen.lineWidth = 1;
    for (const side of [-1, 1]) {
      const [x, y] = [keyX(head) + (side < 0 ? -size - 1 : 1), WHO.top + WHO.gap - 6];
      if (fits) pen.fillRect(x, y, size, size);
      else pen.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
    }
  }
  pen.font = `12px ${colours.sans}`;
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  pen.fillStyle = colours.ink2;
  pen.fillText(`${groupDigits(heads)} query head${heads > 1 ? "s" : ""}`, 1, 8);
  pen.fillText(`${groupDigits(shared)} KV head${shared > 1 ? "s" : ""}: K and V of each are stored`, 1, WHO.top + WHO.gap + 24);
}

function whoFacts(state, meta) {
  const { heads, shared, dim } = state;
  const share = evenly(state) ? `${groupDigits(heads / shared)} : 1` : "–";
  const bytes = 2 * shared * dim * meta.itemsize;
  const all = 2 * heads * dim * meta.itemsize;
  const fact = (name, value) => [element("dt", {}, name), element("dd", { class: "number" }, value)];
  return [
    element("div", { class: "who-ratio" }, share),
    element("div", { class: "note" }, evenly(state) ? whoKind(state) : "no even split"),
    element(
      "dl",
      {},
      fact("2 K Dh numbers a position", groupDigits(2 * shared * dim)),
      fact(`bytes a layer, ${meta.bits} bit`, evenly(state) ? groupDigits(bytes) : "–"),
      fact("with a KV head each (MHA)", groupDigits(all)),
      fact("with one for all (MQA)", groupDigits(all / heads)),
    ),
  ];
}

const whoKind = ({ heads, shared }) => (shared === heads ? "multi-head: each reads its own" : shared === 1 ? "multi-query: all read one" : "grouped-query");

function whoReading(state) {
  const { heads, shared, query } = state;
  if (!evenly(state)) {
    const each = Math.floor(heads / shared);
    const divisors = Array.from({ length: heads }, (_, k) => k + 1).filter((n) => heads % n === 0);
    const why =
      shared > heads
        ? `There are more KV heads than query heads: ${groupDigits(shared - heads)} of them would be read by nobody.`
        : `${groupDigits(heads)} = ${groupDigits(shared)} × ${groupDigits(each)} + ${groupDigits(heads - shared * each)}: the groups would not be of one size, and head h could not read KV head h // G.`;
    return [element("b", {}, `${groupDigits(heads)} query heads cannot share ${groupDigits(shared)} KV heads. `), why, ` K can be ${divisors.join(", ")}.`];
  }
  const group = heads / shared;
  if (query === null) return [`Query head h reads KV head h // ${groupDigits(group)}. Point at a head, or walk with the arrow keys.`];
  const read = Math.floor(query / group);
  const others = group > 1 ? `, with heads ${read * group} to ${read * group + group - 1}` : "";
  return [`Query head `, element("b", {}, String(query)), ` reads KV head `, element("b", {}, String(read)), ` = ${query} // ${group}${others}.`];
}

function whoRows(state) {
  const fits = evenly(state);
  const group = state.heads / state.shared;
  return [["query head", "KV head"], ...Array.from({ length: state.heads }, (_, head) => [head, fits ? Math.floor(head / group) : ""])];
}
