// A payload that carries what it would be at every stop of some sliders of the page (figures/stops.py): the component draws for where
// they stand now, while the server still works on its answer.

// The payload as it is where the sliders stand now: {meta, arrays}. null where it does not say: two of them have moved, or a stop has
// no answer. Then what is drawn stays until the server's.
function atStops({ meta, arrays }) {
  const places = (meta.sliders ?? []).map((slider) => ({ ...slider, now: sliderNow(slider.name, slider.at) }));
  const moved = places.filter(({ at, now }) => now !== at);
  if (moved.filter(({ apart }) => !apart).length > 1) return null;
  const drawn = [...arrays];
  let said = meta;
  for (const { stops, now } of moved) {
    const found = stops[now];
    if (!found) return null;
    said = changedMeta(said, found.meta);
    for (const [at, other] of Object.entries(found.arrays)) drawn[at] = arrays[other];
  }
  return { meta: said, arrays: drawn };
}

function changedMeta(own, how) {
  if (Array.isArray(how)) return how[0];
  const made = Array.isArray(own) ? [...own] : { ...own };
  for (const [name, change] of Object.entries(how)) made[name] = changedMeta(made[name], change);
  return made;
}

// Calls hear() whenever one of the payload's sliders has moved; returns the function that stops it.
function onStops({ meta }, hear) {
  const stops = (meta.sliders ?? []).map(({ name }) => onSlider(name, hear));
  return () => stops.forEach((stop) => stop());
}
