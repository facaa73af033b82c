"""Overview: the model that is loaded, drawn from its config, and what one forward of the prompt does."""

from ui import models, page, runs, shell

shell.ensure()

page.head(
    "Glassbox",
    "A glass box around a language model",
    "A real transformer runs below on your prompt. Every picture is drawn from its tensors, "
    "and beside each number stands its twin, found another way.",
)
opened = models.current()
prompt = runs.prompt(opened)
if prompt.ids:
    page.prose(f"{len(prompt.ids)} tokens.")
else:
    page.empty_prompt()
