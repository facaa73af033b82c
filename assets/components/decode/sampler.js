// The sampler in the browser: lmcore/sampling.py once more, filter by filter in the same order, so that its sliders need no message.
// A test compares the two. Logits are float32, all probabilities float64.

const FEW = [1024, 8192];

// logits: Float32Array (V,). settings: as lmcore's Sampler names them. history: ids of the tokens before, each once.
// Returns {probs: Float64Array, stages: [[name, kept, mass removed]], raw: Float64Array}; raw is softmax(logits), and may be given.
function sampledDistribution(logits, settings, history, raw = softmaxOf(logits)) {
  const stages = [];
  const scores = penalisedLogits(logits, settings.repetition_penalty, history);
  if (settings.repetition_penalty !== 1) {
    const after = scores === logits ? raw : softmaxOf(scores);
    const taken = massAt(raw, history) - massAt(after, history);
    stages.push(["repetition penalty", logits.length, Math.max(0, taken)]);
  }
  if (settings.temperature === 0) {
    const likeliest = largestAt(scores);
    const probs = new Float64Array(logits.length);
    probs[likeliest] = 1;
    stages.push(["greedy", 1, 1 - raw[likeliest]]);
    return { probs, stages: withoutRounding(stages, logits.length), raw };
  }
  let probs = softmaxOf(scores, settings.temperature);
  if (settings.temperature !== 1) stages.push(["temperature", countOf(probs), 0]);
  const filters = [
    ["top-k", settings.top_k > 0, keepTopK, settings.top_k],
    ["top-p", settings.top_p < 1, keepTopP, settings.top_p],
    ["min-p", settings.min_p > 0, keepMinP, settings.min_p],
    ["typical", settings.typical_p < 1, keepTypical, settings.typical_p],
  ];
  for (const [name, on, keep, value] of filters) {
    if (!on) continue;
    const kept = keep(probs, value);
    const mass = kept.reduce((sum, p) => sum + p, 0);
    probs = kept.map((p) => p / mass);
    stages.push([name, countOf(probs), Math.max(0, 1 - mass)]);
  }
  return { probs, stages: withoutRounding(stages, logits.length), raw };
}

// Inverse CDF: the token whose share of [0, 1) holds `point`.
function drawnToken(probs, point) {
  const total = probs.reduce((sum, p) => sum + p, 0);
  let sum = 0;
  let token = 0;
  for (let id = 0; id < probs.length; id++) {
    if (!probs[id]) continue;
    token = id;
    sum += probs[id];
    if (sum > point * total) break;
  }
  return token;
}

function softmaxOf(scores, temperature = 1) {
  const largest = scores[largestAt(scores)];
  const out = new Float64Array(scores.length);
  let sum = 0;
  for (let id = 0; id < out.length; id++) sum += out[id] = Math.exp((scores[id] - largest) / temperature);
  for (let id = 0; id < out.length; id++) out[id] /= sum;
  return out;
}

// In float32, as numpy does it: a logit divided or multiplied by a number that was rounded to float32 first.
function penalisedLogits(logits, penalty, history) {
  if (penalty === 1 || !history.length) return logits;
  const out = logits.slice();
  const by = Math.fround(penalty);
  for (const id of history) out[id] = out[id] > 0 ? out[id] / by : out[id] * by;
  return out;
}

const largestAt = (values) => values.reduce((best, value, id) => (value > values[best] ? id : best), 0);
const massAt = (probs, ids) => ids.reduce((sum, id) => sum + probs[id], 0);
const countOf = (probs) => probs.reduce((count, p) => count + (p > 0), 0);

function keepTopK(probs, k) {
  const least = Float64Array.from(probs).sort()[probs.length - Math.min(k, probs.length)];
  return probs.map((p) => (p >= least ? p : 0));
}

function keepMinP(probs, share) {
  const least = share * probs[largestAt(probs)];
  return probs.map((p) => (p >= least ? p : 0));
}

const keepTopP = (probs, mass) => keepUntil(probs, mass, (p) => -p);

function keepTypical(probs, mass) {
  const entropy = probs.reduce((sum, p) => (p > 0 ? sum - p * Math.log(p) : sum), 0);
  return keepUntil(probs, mass, (p) => Math.abs(-Math.log(p) - entropy));
}

// Tokens in the order of key(p), equals in that of their ids, until those before reach `mass`.
function keepUntil(probs, mass, key) {
  const ids = [];
  for (let id = 0; id < probs.length; id++) if (probs[id] > 0) ids.push(id);
  const keys = Float64Array.from(ids, (id) => key(probs[id]));
  const kept = new Float64Array(probs.length);
  let sum = 0;
  for (const at of firstInOrder(keys, (at) => probs[ids[at]], mass)) {
    const p = probs[ids[at]];
    sum += p;
    if (sum - p >= mass) break;
    kept[ids[at]] = p;
  }
  return kept;
}

// Places in the order of their keys: all, or only the first of them if these already reach `mass`; to sort few is quick.
function firstInOrder(keys, probability, mass) {
  const sorted = keys.length > FEW[0] ? Float64Array.from(keys).sort() : null;
  const all = Array.from(keys, (_, at) => at);
  const inOrder = (places) => places.sort((a, b) => keys[a] - keys[b] || a - b);
  for (const few of FEW) {
    if (few >= keys.length) break;
    const some = all.filter((at) => keys[at] <= sorted[few - 1]);
    if (some.reduce((sum, at) => sum + probability(at), 0) > mass + 1e-6) return inOrder(some);
  }
  return inOrder(all);
}

// Where no token was removed no mass was: what is left there is the rounding of a sum.
function withoutRounding(stages, vocabulary) {
  return stages.map(([name, kept, mass], at) => [name, kept, kept < (at ? stages[at - 1][1] : vocabulary) ? mass : 0]);
}
