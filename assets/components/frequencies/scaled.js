// What the sliders say as specs: the browser's half of figures/scalings.py, `scaled`.

const factorCurve = (last, power, pairs) => Array.from({ length: pairs }, (_, i) => 1 + (last - 1) * (i / Math.max(1, pairs - 1)) ** power);

function scaledRope(method, settings, rope) {
  const plain = {
    ...{ type: "default", rotary_dim: rope.rotary_dim, base: rope.base, factor: 1, original_max_positions: null, max_positions: null },
    ...{ attention_factor: null, beta_fast: 32, beta_slow: 1, truncate: true, mscale: null, mscale_all_dim: null },
    ...{ low_freq_factor: 1, high_freq_factor: 4, short_factor: [], long_factor: [], rotated_fraction: 1 },
  };
  const { factor } = settings;
  const original = Math.round(settings.original);
  if (method === "none") return plain;
  if (method === "linear" || method === "ntk") return { ...plain, type: method, factor };
  if (method === "dynamic") return { ...plain, type: method, factor, max_positions: original };
  const scaling = { ...plain, type: method, factor, original_max_positions: original };
  if (method === "yarn")
    return {
      ...scaling,
      beta_fast: Math.max(settings.beta_fast, settings.beta_slow),
      beta_slow: settings.beta_slow,
      attention_factor: yarnMscale(factor, settings.mscale) / yarnMscale(factor, settings.mscale_all_dim),
    };
  if (method === "llama3") {
    const low = settings.low_freq_factor;
    return { ...scaling, low_freq_factor: low, high_freq_factor: Math.max(settings.high_freq_factor, low * 1.01) };
  }
  const pairs = rope.rotary_dim / 2;
  const [short_factor, long_factor] = [settings.short_last, settings.long_last].map((last) => factorCurve(last, settings.long_power, pairs));
  return { ...scaling, short_factor, long_factor };
}

// {name, key, theta, factor, divisors, kept, divided, fresh} for each method under the settings, the model's own first if it has one.
function scaledAll(meta, settings) {
  const unscaled = ropePowers(meta.rope.base, meta.rope.rotary_dim);
  const length = Math.round(settings.length);
  const original = Math.round(settings.original);
  const specs = meta.methods.map(([key, name]) => ({ key, name, rope: scaledRope(key, settings, meta.rope) }));
  if (meta.rope.type !== "default") specs.unshift({ key: "own", name: `its own (${meta.rope.type})`, rope: meta.rope });
  return specs.map(({ key, name, rope }) => {
    const { theta, factor } = ropeFrequencies(rope, length);
    const divisors = Array.from(unscaled, (value, i) => value / theta[i]);
    const near = (wanted) => divisors.filter((value) => Math.abs(value / wanted - 1) < 1e-6).length;
    const fresh = Array.from(unscaled.keys()).filter(
      (i) => !(wavelength(unscaled[i]) <= original) && length * theta[i] > original * unscaled[i] * (1 + 1e-9),
    );
    return { key, name, rope, theta, factor, divisors, kept: near(1), divided: near(rope.factor), fresh };
  });
}
