"""Glassbox: `streamlit run app.py`."""

from ui import shell

shell.main()
