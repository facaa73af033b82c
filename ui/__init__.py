"""The only shared Streamlit code: shell, state in the URL, cached loads and runs, components, error guard."""
