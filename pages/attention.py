"""Attention: every head of every layer as a map of who reads whom."""

from ui import models, page, runs, shell

shell.ensure()

page.head(
    "Glassbox",
    "Attention",
    "Each token asks a question of every token before it. The answer is a row of weights that sums to one.",
)
opened = models.current()
prompt = runs.prompt(opened)
if prompt.ids:
    page.prose(f"{len(prompt.ids)} tokens.")
else:
    page.empty_prompt()
