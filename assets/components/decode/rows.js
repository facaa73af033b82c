// The numbers behind a run: the tokens listed at one step with both probabilities, and the time of each step's forward.

const runToken = (run, token) => tokenCell(flatToken(partsOf(run, token)));

function distributionRows(run, index) {
  const step = run.steps[index];
  const rows = (step?.listed ?? []).map(({ token, raw, after }) => [index, token, runToken(run, token), raw, after, Number(token === step.token)]);
  return [["step", "token id", "token", "probability in the model", "after the sampler", "chosen"], ...rows];
}

function timeRows(run) {
  const rows = run.steps.map((step, index) => [index, step.token, runToken(run, step.token), step.forward, step.time, Number(Boolean(step.forced))]);
  return [["step", "token id", "token", "tokens of the forward", "seconds", "by hand"], ...rows];
}
