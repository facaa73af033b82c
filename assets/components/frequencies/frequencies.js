// The browser's half of lmcore/frequencies.py: the same numbers from the same spec, so that a slider needs no message to the server.
// tests/e2e/test_positions.py holds every type to Python's, at 1e-6. `rope` has the fields of lmcore.specs.Rope.

// base^(-2i/d), i = 0 .. d/2 - 1 (Su et al. 2021, eq. 15).
const ropePowers = (base, dim) => Float64Array.from({ length: dim / 2 }, (_, i) => base ** (-(2 * i) / dim));

// NTK-aware (bloc97 2023): the base that divides the slowest of d/2 frequencies by `factor` and keeps the fastest.
const ntkBase = (base, factor, dim) => (dim > 2 ? base * factor ** (dim / (dim - 2)) : base);

// YaRN, eq. 22; DeepSeek-V2's mscale.
const yarnMscale = (factor, weight) => (factor > 1 ? 0.1 * weight * Math.log(factor) + 1 : 1);

function yarnFactor(rope) {
  if (rope.attention_factor !== null) return rope.attention_factor;
  if (rope.mscale && rope.mscale_all_dim) return yarnMscale(rope.factor, rope.mscale) / yarnMscale(rope.factor, rope.mscale_all_dim);
  return yarnMscale(rope.factor, 1);
}

// The pair, as a real number, that makes so many turns within the original context (YaRN, eq. 17).
const pairOfTurns = (rope, turns) =>
  (rope.rotary_dim * Math.log(rope.original_max_positions / (turns * 2 * Math.PI))) / (2 * Math.log(rope.base));

// Where YaRN's ramp from kept to interpolated begins and ends, in pairs.
function yarnRamp(rope) {
  let [low, high] = [pairOfTurns(rope, rope.beta_fast), pairOfTurns(rope, rope.beta_slow)];
  if (rope.truncate) [low, high] = [Math.floor(low), Math.ceil(high)];
  return [Math.max(low, 0), Math.min(high, rope.rotary_dim - 1)];
}

const clampUnit = (value) => Math.max(0, Math.min(1, value));

const ROPE_TYPES = {
  default: (rope) => [ropePowers(rope.base, rope.rotary_dim), 1],
  linear: (rope) => [ropePowers(rope.base, rope.rotary_dim).map((theta) => theta / rope.factor), 1],
  ntk: (rope) => [ropePowers(ntkBase(rope.base, rope.factor, rope.rotary_dim), rope.rotary_dim), 1],
  dynamic(rope, length) {
    const trained = rope.max_positions;
    const stretch = (rope.factor * Math.max(length, trained)) / trained - (rope.factor - 1);
    return [ropePowers(ntkBase(rope.base, stretch, rope.rotary_dim), rope.rotary_dim), 1];
  },
  yarn(rope) {
    const [low, high] = yarnRamp(rope);
    const width = high === low ? 0.001 : high - low;
    const theta = ropePowers(rope.base, rope.rotary_dim).map((kept, i) => {
      const ramp = clampUnit((i - low) / width);
      return (kept / rope.factor) * ramp + kept * (1 - ramp);
    });
    return [theta, yarnFactor(rope)];
  },
  llama3(rope) {
    const theta = ropePowers(rope.base, rope.rotary_dim).map((kept) => {
      const turns = (rope.original_max_positions * kept) / (2 * Math.PI);
      const mix = clampUnit((turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor));
      return ((1 - mix) * kept) / rope.factor + mix * kept;
    });
    return [theta, 1];
  },
  longrope(rope, length) {
    const divisors = length > rope.original_max_positions ? rope.long_factor : rope.short_factor;
    const factor = rope.factor > 1 ? Math.sqrt(1 + Math.log(rope.factor) / Math.log(rope.original_max_positions)) : 1;
    return [ropePowers(rope.base, rope.rotary_dim).map((theta, i) => theta / divisors[i]), rope.attention_factor ?? factor];
  },
  divided: (rope) => [ropePowers(rope.base, rope.rotary_dim).map((theta, i) => theta / rope.short_factor[i]), 1],
  proportional(rope) {
    const turning = Math.floor((rope.rotated_fraction * rope.rotary_dim) / 2);
    return [ropePowers(rope.base, rope.rotary_dim).map((theta, i) => (i < turning ? theta / rope.factor : 0)), 1];
  },
};

// {theta: Float64Array(d/2) in radians a token, factor} at a context of `length` tokens.
function ropeFrequencies(rope, length) {
  const [theta, factor] = ROPE_TYPES[rope.type](rope, length);
  return { theta, factor };
}
