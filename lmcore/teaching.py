"""The teaching family: small models of one text, alike in all but one thing, shipped in assets/models.

Read without torch. `python -m lmcore.train` makes them; `teaching:NAME` opens one.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from lmcore.errors import CheckpointError

ASSETS = Path(__file__).parent.parent / "assets"
MODELS = ASSETS / "models"
HELDOUT = ASSETS / "text" / "heldout.txt"
# The trained length of every model, and the size of the tokenizer that they share.
CONTEXT, VOCABULARY = 128, 1024


class Teaching(NamedTuple):
    """One model: its folder's name, its title, what it is for, and where its shape differs from the others'.

    `position` is "rope", "alibi", "learned", "sinusoidal", "t5" or "none".
    """

    name: str
    title: str
    sentence: str
    position: str = "rope"
    kv_heads: int = 2
    width: int = 128
    layers: int = 6
    ffn: int = 352

    @property
    def folder(self) -> Path:
        return MODELS / self.name

    @property
    def attention_only(self) -> bool:
        return self.ffn == 0

    @property
    def on_text(self) -> bool:
        """Whether it was trained on the text; the induction model saw repeated random tokens only."""
        return not self.attention_only

    @property
    def config(self) -> dict[str, Any]:
        """Its config.json: LLaMA's where LLaMA's fields can say it, else with `model_type` "glassbox"."""
        plain = self.position == "rope" and not self.attention_only
        made: dict[str, Any] = {
            "architectures": ["LlamaForCausalLM" if plain else "GlassboxForCausalLM"],
            "model_type": "llama" if plain else "glassbox",
            "vocab_size": VOCABULARY,
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": 4,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.width // 4,
            "hidden_act": "silu",
            "max_position_embeddings": CONTEXT,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": True,
            "bos_token_id": None,
            "eos_token_id": None,
            "dtype": "float16",
        }
        if self.attention_only:
            made["attention_only"] = True
        else:
            made["intermediate_size"] = self.ffn
        if not plain:
            made["position"] = self.position
        if self.position == "rope":
            made["rope_parameters"] = {"rope_type": "default", "rope_theta": 10_000.0}
        return made


FAMILY = (
    Teaching("rope-gqa", "RoPE", "rotary positions, two query heads on each KV head: the one that the others vary"),
    Teaching("alibi", "ALiBi", "a bias that falls with distance, and nothing else, says where a key is", "alibi"),
    Teaching("nope", "NoPE", "no positions at all: only the causal mask tells one order from another", "none"),
    Teaching(
        "sinusoidal",
        "Sinusoidal",
        "a fixed table of sines and cosines added to the embedding, scaled by √D for it",
        "sinusoidal",
    ),
    Teaching("learned", "Learned", "a learned table of 128 rows added to the embedding", "learned"),
    Teaching("t5", "T5 bias", "a learned bias per head and bucket of distance", "t5"),
    Teaching("rope-mha", "RoPE, MHA", "rotary positions, each query head with a KV head of its own", kv_heads=4),
    Teaching("rope-mqa", "RoPE, MQA", "rotary positions, one KV head for all query heads", kv_heads=1),
    Teaching(
        "induction",
        "Induction",
        "two layers of attention only, trained on repeated random tokens: its heads find and copy",
        kv_heads=4,
        layers=2,
        ffn=0,
    ),
    Teaching("draft", "Draft", "a quarter of the size, to draft for the others", width=64, layers=5, ffn=176),
)


def by_name(name: str) -> Teaching:
    """The model of a name. Raises CheckpointError for one that the family doesn't have."""
    for model in FAMILY:
        if model.name == name:
            return model
    known = ", ".join(model.name for model in FAMILY)
    raise CheckpointError(f"there is no teaching model {name[:80]!r}", expected=f"one of {known}")


def shipped() -> tuple[Teaching, ...]:
    """The models whose folders are there."""
    return tuple(model for model in FAMILY if (model.folder / "model.safetensors").is_file())


@cache
def record(name: str) -> dict[str, Any]:
    """How a model was trained: text, budget, seed, `curve` of losses by step, `heldout` loss in nats per token and bits
    per byte, `ngram` the same of an n-gram model; `planted` scores of the induction model.

    Raises CheckpointError when its folder has none.
    """
    file = by_name(name).folder / "record.json"
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"teaching model {name} has no training record",
            expected=file.name,
            where=name,
            todo=f"Train it: `python -m lmcore.train {name} --text FILE`.",
        ) from error


@cache
def heldout_text() -> str:
    """About 20 kB of the end of the text, which no model was trained on: whole speeches of a play (public domain)."""
    return HELDOUT.read_text(encoding="utf-8")
