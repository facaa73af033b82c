"""What a trained model leaves in its folder: weights, config, tokenizer, record, and the model card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from lmcore.model import Transformer
from lmcore.teaching import CONTEXT, FAMILY, Teaching
from lmcore.training.text import ORIGIN

CARD = """---
license: apache-2.0
library_name: transformers
---

# {title}: {sentence}

One of Glassbox's teaching models: {parameters:,} parameters, {layers} layers of width {width}, 4 query heads on \
{kv_heads} KV heads, a context of {context} tokens and a vocabulary of {vocabulary:,} byte-level BPE tokens. \
{family} {opens}

It is made to be looked into, not to be used: it imitates Shakespeare badly and knows nothing else.

## Training

{data}

- Budget: {steps:,} steps of {batch} × {context} tokens; AdamW, betas {betas}, weight decay {decay} on matrices, \
learning rate {peak} after {warmup} steps, falling along a cosine to {floor} of it, gradients clipped to norm {clip}.
- First weights normal with standard deviation {std}, those that write to the residual stream divided by √(2 L);
  dropout {dropout} on the hidden numbers of each feed-forward sublayer.
- Seed {seed}, {threads} thread; `python -m lmcore.train {name} --text FILE` makes it again, bit for bit with the same \
version of PyTorch ({torch}), processor and thread count.
- `record.json` has the loss curve and every number below.

## Result

{result}

## Licence

Weights, config and tokenizer: Apache 2.0, as Glassbox. The text is in the public domain.
"""

TEXT = """- Text: 1.1 MB of Shakespeare's plays (public domain), known as tinyshakespeare, sha256 `{sha256}`,
  from {origin}. It is not part of this repository.
- The last tenth is held out; tokenizer and models saw the first nine tenths only."""
REPEATS = """- Sequences of uniformly random tokens that repeat after a random period of {low} to {high} tokens; the
  loss is taken from the second period on. It never saw text; it shares the family's tokenizer."""


def write_folder(
    model: Transformer, teaching: Teaching, tokenizer: Tokenizer, record: dict[str, Any], folder: Path
) -> None:
    """Write the model as an ordinary folder, in float16, with record.json and README.md."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: p.detach().to(torch.float16).contiguous() for name, p in model.state_dict().items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(folder / "tokenizer.json"))
    said = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
    }
    for name, content in (("config.json", teaching.config), ("tokenizer_config.json", said), ("record.json", record)):
        (folder / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(card(teaching, record), encoding="utf-8")


def card(teaching: Teaching, record: dict[str, Any]) -> str:
    """The model card of a trained model, from its record."""
    if teaching.on_text:
        heldout, ngram = record["heldout"], record["ngram"]
        data = TEXT.format(sha256=record["text"]["sha256"], origin=ORIGIN)
        result = (
            f"Held-out loss {heldout['nats_per_token']:.3f} nats per token, {heldout['bits_per_byte']:.3f} bits per "
            f"byte, over {heldout['tokens']:,} tokens in windows of {CONTEXT}. An interpolated Kneser-Ney "
            f"{ngram['order']}-gram model of the same tokens, the best order, has {ngram['nats_per_token']:.3f} and "
            f"{ngram['bits_per_byte']:.3f}."
        )
    else:
        low, high = record["periods"]
        data = REPEATS.format(low=low, high=high)
        planted = record["planted"]
        result = (
            f"Planted induction score (mean weight on the token after the earlier copy of the query's own, on random "
            f"tokens repeated once): {planted['induction']:.3f} in head {planted['head']} of layer "
            f"{planted['layer']}. Loss on repeated tokens {record['repeats']['nats_per_token']:.3f} nats; chance "
            f"would be {record['repeats']['chance']:.3f}."
        )
    same = "Block (LLaMA's), tokenizer and seed are those of all the family"
    family = f"{same}."
    if teaching.on_text and teaching.width == FAMILY[0].width:
        family = f"{same}, and so are size, batches and budget: position encoding or head sharing is what differs."
    plain = teaching.config["model_type"] == "llama"
    opens = (
        "Its config is LLaMA's, so that `transformers` opens it."
        if plain
        else "Its config has a `model_type` of Glassbox's own, since LLaMA's fields cannot say it: `lmcore` opens it."
    )
    budget = {key: value for key, value in record["budget"].items() if key != "context"}
    return CARD.format(
        title=teaching.title,
        sentence=teaching.sentence,
        name=teaching.name,
        layers=teaching.layers,
        width=teaching.width,
        kv_heads=teaching.kv_heads,
        context=CONTEXT,
        vocabulary=record["vocabulary"],
        parameters=record["parameters"],
        family=family,
        opens=opens,
        data=data,
        result=result,
        threads=record["threads"],
        torch=record["torch"],
        **budget,
    )
