"""Tokens and logits: the prompt as the model reads it, and what it expects at each position."""

from ui import models, page, runs, shell

shell.ensure()

page.head(
    "Glassbox",
    "Tokens and logits",
    "A model reads numbers, not words. After each one it gives every entry of its vocabulary a chance to come next.",
)
opened = models.current()
prompt = runs.prompt(opened)
if prompt.ids:
    page.prose(f"{len(prompt.ids)} tokens.")
else:
    page.empty_prompt()
