// Decoding step by step: the tokens so far, and for the step looked at the distribution before and after the sampler.

const NEEDLE_HEIGHT = 22;

export default function ({ data, parentElement, setTriggerValue }) {
  const host = parentElement.querySelector(".gb");
  let made = readRun(unpack(data)); // as the page made it, and the step that was held for it
  const state = mounted(parentElement, () => ({
    step: stepFromUrl(made.url),
    last: made.steps.length - 1,
    stop: null,
    memory: {},
  }));
  state.stop?.();
  // A step made, taken back or made anew is looked at; otherwise, and while a link's steps are made, the one chosen stays:
  // also when the last of them comes in together with the news that they are all made.
  const last = made.steps.length - 1;
  if (!made.keep && (state.step >= last || (state.last !== last && !state.keep))) state.step = null;
  state.last = last;
  state.keep = made.keep;
  let figure = null;

  function setStep(step, tell = true) {
    const end = figure.run.steps.length - 1;
    const wanted = Math.max(0, Math.min(end, step));
    state.step = wanted === end ? null : wanted;
    if (tell && made.url) viewToUrl({ [made.url]: state.step });
    draw();
  }

  function draw() {
    const end = made.steps.length - 1;
    const index = state.step === null ? end : Math.min(state.step, end);
    const shown = asSetNow(made, index, state.memory);
    if (!figure || !sameTokens(figure.run, shown)) figure = runFigure(host, shown, setStep, (choice) => setTriggerValue("choose", choice));
    figure.draw(shown, index, state.step === null);
  }

  // The next step, where it is held: it is what the page is about to make.
  function goOn() {
    const found = heldForMe("next");
    const next = found && readRun(found);
    if (!next || made.keep || next.keys[0] !== made.keys[made.steps.length]) return;
    if (!alike(next.settings, made.settings) || !alike(next.settings, settingsNow(made))) return;
    const steps = [...made.steps, ...next.steps];
    const vocabulary = { ...made.vocabulary, ...next.vocabulary };
    made = { ...made, steps, vocabulary, keys: [...made.keys, next.keys[1]], address: next.address };
    state.step = null;
    state.last = steps.length - 1;
    draw();
    tellAddress();
  }

  const tellAddress = () => viewToUrl(made.url && state.step === null ? { ...made.address, [made.url]: null } : made.address);

  draw();
  tellAddress();
  whenFontsLoad(draw);
  const stops = [onWidth(host, draw), onHeld(draw), onPress("decode_step", goOn)];
  for (const label of Object.values(made.controls ?? {})) stops.push(onSlider(label, draw));
  if (made.url) stops.push(onView(made.url, (step) => step !== state.step && setStep(step ?? made.steps.length - 1, false)));
  state.stop = () => stops.forEach((stop) => stop());
  return () => {
    state.stop();
    unmount(parentElement);
  };
}

const sameTokens = (one, other) =>
  one.prompt === other.prompt && one.steps.length === other.steps.length && one.steps.every((step, at) => step.token === other.steps[at].token);

// Builds the figure of a run. draw(run, index, newest) shows one of its steps, of that run or of one with the same tokens.
function runFigure(host, run, setStep, choose) {
  const last = run.steps.length - 1;
  const strip = chipStrip(
    [...run.prompt, ...run.steps.map((step) => partsOf(run, step.token))],
    "prompt and generated tokens",
    (position) => setStep(position - run.prompt.length),
  );
  run.prompt.forEach((_, position) => strip.node.children[position].classList.add("given"));
  const figure = { run, index: 0, draw };
  const colours = () => themeColours(host);
  const saves = {
    step: figureSaves(() => `decode-step-${figure.index}`, null, () => distributionRows(figure.run, figure.index), colours),
    times: figureSaves("decode-times", () => [svgPicture(parts.times.querySelector("svg"))], () => timeRows(figure.run), colours, {
      title: () => parts.timesNote.textContent,
    }),
  };
  const parts = decodeElements(host, strip.node, run, last, saves);
  parts.range.oninput = () => setStep(Number(parts.range.value));

  function draw(now, index, newest) {
    Object.assign(figure, { run: now, index });
    const step = now.steps[index];
    const current = step ? now.prompt.length + index : now.prompt.length - 1;
    if (current >= 0) strip.update({ current: step ? current : -1, needle: (position) => chosenNeedle(now, position) });
    [...strip.node.children].forEach((chip, position) =>
      chip.classList.toggle("later", step !== undefined && position > current),
    );
    if (newest) strip.node.scrollTop = strip.node.scrollHeight;
    parts.range.value = Math.max(0, index);
    parts.stepName.replaceChildren(...stepInWords(now, step, index, last));
    parts.range.setAttribute("aria-valuetext", parts.stepName.textContent);
    parts.text.replaceChildren(...textSoFar(now, index));
    parts.text.scrollTop = parts.text.scrollHeight;
    parts.body.hidden = !step;
    if (!step) return;
    parts.table.replaceChildren(distributionTable(step, now.vocabulary, (token) => choose({ step: index, token })));
    parts.stages.replaceChildren(stageList(step));
    drawTimes(parts, now, index, setStep);
  }
  return figure;
}

function drawTimes(parts, run, index, setStep) {
  const width = Math.floor(parts.times.clientWidth);
  if (!width) return;
  const figure = timesFigure(run.steps, index, width, setStep);
  parts.times.replaceChildren(figure);
  const scale = figure.dataset.scale === "log" ? "milliseconds, log scale" : "milliseconds";
  const decode = run.steps.slice(1);
  const median = decode.length > 1 ? ` The median decode step took ${decimals(medianTime(decode), 1)} ms.` : "";
  parts.timesNote.textContent = `${scale}; across: steps.${median}`;
}

function readRun({ meta, arrays }) {
  const [ids, raw, after] = arrays;
  const width = ids.shape[1];
  const steps = meta.steps.map((step, row) => ({
    ...step,
    listed: Array.from({ length: step.listed }, (_, k) => {
      const at = row * width + k;
      return { token: ids.data[at], raw: raw.data[at], after: after.data[at] };
    }),
  }));
  return { ...meta, steps };
}

const partsOf = (run, token) => run.vocabulary[token] ?? [];

function stepFromUrl(name) {
  const step = name ? Number.parseInt(viewFromUrl([name])[name], 10) : NaN;
  return Number.isInteger(step) && step >= 0 ? step : null;
}

// How probable the model held the token that was chosen; nothing under the prompt's own tokens.
function chosenNeedle(run, position) {
  const step = run.steps[position - run.prompt.length];
  if (!step) return { kind: "none" };
  const { raw } = step.listed.find((entry) => entry.token === step.token);
  return { kind: "loss", height: Math.max(1, raw * NEEDLE_HEIGHT), title: `probability ${decimals(raw, 4)}` };
}

function stepInWords(run, step, index, last) {
  if (!step) return [run.prompt.length ? "no step yet" : "the prompt is empty"];
  const tokens = `${groupDigits(step.forward)} token${step.forward === 1 ? "" : "s"}`;
  const forward = index ? `forward of ${tokens}` : `prefill of ${tokens}`;
  const bold = (text) => element("b", { class: "number" }, text);
  return [
    `step ${index} of ${last}: `,
    bold(timeText(step)),
    ` for a ${forward}, then ${step.forced ? "by hand" : "drawn"} for position ${step.position}: `,
    tokenText(partsOf(run, step.token)),
  ];
}

// The generated text up to this step. A character that is spread over tokens appears when its last byte is there.
function textSoFar(run, index) {
  const made = run.steps.slice(0, index + 1);
  const text = element("span", { class: "said" }, made.map((step) => step.text).join(""));
  const waiting = made.at(-1)?.waiting ?? 0;
  const bytes = waiting === 1 ? "1 byte waits" : `${waiting} bytes wait`;
  return waiting ? [text, element("span", { class: "note" }, `${bytes} for the rest of a character`)] : [text];
}

function decodeElements(host, strip, run, last, saves) {
  const range = element("input", { type: "range", min: 0, max: Math.max(0, last), step: 1, "aria-label": "step" });
  range.disabled = last < 1;
  const stepName = element("div", { class: "note step-name", "aria-live": "polite" });
  const text = element("p", { class: "text" });
  const table = element("div");
  const stages = element("div");
  const times = element("div", { class: "times" });
  const timesNote = element("p", { class: "note" });
  const hint = element(
    "p",
    { class: "note" },
    "Bars run from 0 to 1. Click a token to choose it instead: the steps after it are taken back.",
  );
  const body = element(
    "div",
    { class: "body" },
    element("div", {}, table, hint, saves.step),
    element(
      "div",
      { class: "side" },
      element("div", { class: "caption" }, "The sampler, in order"),
      stages,
      element("div", { class: "caption" }, "Time of each forward, measured"),
      times,
      timesNote,
      saves.times,
    ),
  );
  const legend = element(
    "div",
    { class: "note legend" },
    element("i", { class: "loss" }),
    "probability the model gave the chosen token; click one to see its step",
  );
  host.replaceChildren(
    element("label", { class: "steps" }, element("span", { class: "caption" }, "Step"), range),
    stepName,
    element("div", { class: "tokens" }, last >= 0 ? legend : null, strip),
    text,
    body,
  );
  return { range, stepName, text, body, table, stages, times, timesNote };
}
