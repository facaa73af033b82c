// Streamlit's sliders, heard in the browser: a figure that knows the values of every stop repaints while the thumb moves, long before
// the page has run. Streamlit draws a slider as an <input type="range"> whose accessible name is the slider's label; for a select_slider
// its value is the index of the option.

function pageSlider(name) {
  return document.querySelector(`[data-testid="stSlider"] input[type="range"][aria-label="${CSS.escape(name)}"]`);
}

// Where the thumb stands now; `otherwise` where the page has no such slider. What a payload says may be older than this.
function sliderNow(name, otherwise = null) {
  const input = pageSlider(name);
  return input ? Number(input.value) : otherwise;
}

// Calls hear(value) whenever the thumb has moved, by key or by pointer; returns the function that stops it.
function onSlider(name, hear) {
  let last = sliderNow(name);
  const observer = new MutationObserver(() => {
    const value = sliderNow(name, last);
    if (value === last) return;
    last = value;
    hear(value);
  });
  observer.observe(document.body, { subtree: true, attributes: true, attributeFilter: ["value", "aria-valuetext"] });
  return () => observer.disconnect();
}
