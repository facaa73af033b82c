"""Pure figures: arrays and numbers in, a component payload or a plotly figure out; no streamlit, no torch."""
