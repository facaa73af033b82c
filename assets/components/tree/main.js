// The run as it is and the branches that were left, as one tree of tokens. Clicking a token asks to be there again.

const TREE_HINT = "Point at a token to read it, or walk with the arrow keys; click it or press Enter to return to it.";

export default function ({ data, parentElement, setTriggerValue }) {
  const host = parentElement.querySelector(".gb");
  const tree = readTree(data);
  const colours = themeColours(host);
  const state = mounted(parentElement, () => ({ at: null, shape: "", stop: null }));
  state.stop?.();
  state.at = null;
  const parts = treeElements();
  const saves = figureSaves("decode-branches", () => [parts.canvas], () => treeRows(tree), colours);
  const keep = host.querySelector(".scroller")?.scrollLeft ?? null;
  host.replaceChildren(...parts.all, saves);
  let layout = null;

  function draw() {
    layout = treeLayout(tree, colours);
    drawTree(parts.canvas, tree, layout, state.at, colours);
    parts.reading.replaceChildren(...(state.at === null ? [TREE_HINT] : inWords(tree, state.at)));
    parts.canvas.setAttribute("aria-label", `tree of ${tree.ends.length} branches, the run as it is first; ${TREE_HINT}`);
  }

  function read(at) {
    if (at === state.at) return;
    state.at = at;
    draw();
  }

  function go(at) {
    if (at === null || at === tree.ends[0]) return;
    const path = [];
    for (let node = at; node >= 0; node = tree.nodes[node].parent) path.unshift(tree.nodes[node].token);
    setTriggerValue("go", path);
  }

  const under = (event) => {
    const box = parts.canvas.getBoundingClientRect();
    return nodeAt(tree, layout, event.clientX - box.left, event.clientY - box.top);
  };
  parts.canvas.onpointermove = (event) => {
    read(under(event));
    parts.canvas.style.cursor = state.at === null || state.at === tree.ends[0] ? "default" : "pointer";
  };
  parts.canvas.onpointerleave = () => read(null);
  parts.canvas.onblur = () => read(null);
  parts.canvas.onclick = (event) => go(under(event));
  parts.canvas.onkeydown = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      return go(state.at);
    }
    if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(event.key)) return;
    event.preventDefault();
    read(state.at === null ? tree.ends[0] : nodeBeside(tree, state.at, event.key));
    show(parts.scroller, layout.x[tree.nodes[state.at].step], layout.widths[tree.nodes[state.at].step]);
  };

  draw();
  const shape = tree.ends.length ? `${tree.ends.length} ${tree.nodes.length}` : "";
  if (keep !== null && shape === state.shape) parts.scroller.scrollLeft = keep;
  else show(parts.scroller, layout.x[firstFork(tree)], 0);
  state.shape = shape;
  whenFontsLoad(draw);
  state.stop = onWidth(host, draw);
  return () => {
    state.stop();
    unmount(parentElement);
  };
}

function readTree(data) {
  const { meta, arrays } = unpack(data);
  const [tokens, steps, parents, rows, logProbs, totals] = arrays.map((array) => array.data);
  const nodes = Array.from(tokens, (token, index) => ({
    token,
    step: steps[index],
    parent: parents[index],
    row: rows[index],
    logProb: logProbs[index],
    total: totals[index],
    label: flatToken(meta.vocabulary[token]),
    parts: meta.vocabulary[token],
    current: false,
    names: [],
  }));
  meta.ends.forEach((end, index) => {
    for (let node = end; node >= 0; node = nodes[node].parent) {
      if (index === 0) nodes[node].current = true;
      nodes[node].names.push(meta.names[index]);
    }
  });
  return { ...meta, nodes };
}

function treeRows({ nodes }) {
  const rows = nodes.map(({ step, token, label, logProb, total, names }) => [step, token, tokenCell(label), logProb, total, names.join("; ")]);
  return [["step", "token id", "token", "log p", "log p from the prompt to here", "branches"], ...rows];
}

function treeElements() {
  const canvas = element("canvas", { class: "tree", tabindex: 0, role: "application", "aria-roledescription": "tree of tokens" });
  const scroller = element("div", { class: "scroller" }, canvas);
  const reading = element("div", { class: "note reading", role: "status" });
  const legend = element("div", { class: "note legend" }, element("i", { class: "loss" }), "probability the model gave the token; marked: the run as it is; above: steps");
  return { canvas, scroller, reading, all: [legend, scroller, reading] };
}

// The step of the first node from which two branches go on.
function firstFork(tree) {
  const seen = new Set();
  for (const { parent } of tree.nodes) {
    if (seen.has(parent)) return parent < 0 ? 0 : tree.nodes[parent].step;
    seen.add(parent);
  }
  return 0;
}

function show(scroller, x, width) {
  const { scrollLeft, clientWidth } = scroller;
  if (x < scrollLeft + 20 || x + width > scrollLeft + clientWidth - 40) scroller.scrollLeft = Math.max(0, x - clientWidth / 3);
}

function inWords(tree, at) {
  const { step, logProb, total, parts, names } = tree.nodes[at];
  const number = (value) => element("b", { class: "number" }, value);
  const here = tree.ends.map((end, index) => (end === at ? tree.names[index] : null)).filter(Boolean);
  return [
    `step ${step}, `,
    tokenText(parts),
    ": log p ",
    number(decimals(logProb, 3)),
    " (probability ",
    number(decimals(Math.exp(logProb), 4)),
    "), from the prompt to here ",
    number(decimals(total, 3)),
    here.length ? `. Here ends ${here.join(" and ")}` : names.length > 1 ? `. ${names.length} branches go through it` : `. On ${names[0]}`,
  ];
}
