"""Decode: prefill, then one token a step, with the distribution, the sampler and the KV cache."""

from ui import models, page, runs, shell

shell.ensure()

page.head(
    "Glassbox",
    "Decode, step by step",
    "One pass reads the prompt and fills the cache. From then on each step computes one position and reads the rest.",
)
opened = models.current()
prompt = runs.prompt(opened)
if prompt.ids:
    page.prose(f"{len(prompt.ids)} tokens.")
else:
    page.empty_prompt()
