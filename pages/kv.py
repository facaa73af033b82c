"""Heads and the KV cache: who reads whom, what it costs to store, and what is lost by storing less."""

from ui import kv_calculator_view, page, shell, who_reads_view

shell.ensure()
page.head(
    "Chapter 5",
    "Heads and the KV cache",
    "Every token leaves its keys and values behind for those that follow. How many, decides how long a text may be.",
)
who_reads_view.section()
kv_calculator_view.section()
