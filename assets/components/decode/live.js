// A step as the page's sliders stand now, from the logits that are held for it.

const UNREAD = [["text", "…"]]; // a token whose text is not known here: the page brings it

// The run with the step at `index` chosen again, and without those after it if another token comes out; the run itself
// where nothing differs or the logits are not held.
function asSetNow(run, index, memory) {
  const step = run.steps[index];
  const settings = step ? settingsNow(run) : null;
  if (settings === null || alike(settings, run.settings)) return run;
  const given = heldForMe(`logits ${run.keys[index]}`);
  if (!given) return run;
  const name = JSON.stringify([run.keys[index], step.token, step.forced, settings]);
  if (memory.name !== name) Object.assign(memory, { name, step: chosenAgain(step, given, settings) });
  const again = memory.step;
  const vocabulary = again.token in run.vocabulary ? run.vocabulary : { ...run.vocabulary, [again.token]: UNREAD };
  const after = again.token === step.token ? run.steps.slice(index + 1) : [];
  return { ...run, vocabulary, steps: [...run.steps.slice(0, index), again, ...after] };
}

// What the sliders say; null where the page has none of them.
function settingsNow(run) {
  if (!run.settings || !run.controls) return null;
  const pairs = Object.entries(run.settings).map(([name, value]) => [name, sliderNow(run.controls[name] ?? "", value)]);
  return Object.fromEntries(pairs);
}

const alike = (one, other) => Object.keys(one).every((name) => Math.abs(one[name] - other[name]) < 1e-9);

function chosenAgain(step, given, settings) {
  const { meta } = given;
  const [logits, history] = given.arrays.map(({ data }) => data);
  given.raw ??= softmaxOf(logits);
  const { probs, stages, raw } = sampledDistribution(logits, settings, history, given.raw);
  const token = step.forced ? step.token : drawnToken(probs, meta.point);
  const likeliest = step.listed.slice(0, step.top);
  const ids = likeliest.map((entry) => entry.token);
  if (!ids.includes(token)) ids.push(token);
  const listed = ids.map((id) => ({ token: id, raw: raw[id], after: probs[id] }));
  const others = (values) => values.reduce((sum, p) => sum + p, 0) - ids.reduce((sum, id) => sum + values[id], 0);
  const [text, waiting] = token === step.token ? [step.text, step.waiting] : (meta.texts[token] ?? ["", 0]);
  return {
    ...step,
    token,
    listed,
    stages,
    text,
    waiting,
    kept: countOf(probs),
    rank: countOf(raw.map((p) => (p > raw[token] ? 1 : 0))),
    rest: [Math.max(0, others(raw)), countOf(probs) > ids.filter((id) => probs[id] > 0).length ? others(probs) : 0],
  };
}
