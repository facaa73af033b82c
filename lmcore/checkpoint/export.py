"""A model's weights as a folder that other programs read: the one it came from, or one written now."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from lmcore.checkpoint.convert import converted
from lmcore.checkpoint.rules import LoadReport
from lmcore.checkpoint.sources import resolve
from lmcore.config import ModelConfig
from lmcore.errors import CheckpointError, ConfigError
from lmcore.families import config_from_hf
from lmcore.model import Transformer
from lmcore.specs import GroupedQuery, Rope


@contextmanager
def weights_folder(
    model: Transformer, report: LoadReport, progress: Callable[[str], object] | None = None
) -> Iterator[Path]:
    """A folder with the model's weights as Hugging Face writes them; one made for the purpose is deleted at the end.

    That is the model's own folder, the conversion of its GGUF file, or, for random weights, a folder written now.
    Raises CheckpointError for random weights of a family whose tensors have other names in a file.
    """
    if not report.path:
        with tempfile.TemporaryDirectory(prefix="glassbox-weights-") as work:
            write_folder(model, Path(work))
            yield Path(work)
        return
    place = resolve(report.path)
    if report.source.startswith("package:") and (named := resolve(report.source)).kind == place.kind:
        place = named  # it names the conversion by the package's version too
    assert place.path is not None
    if place.kind == "gguf":

        def say(done: int, total: int, line: str) -> None:
            if progress is not None:
                progress(line)

        yield converted(place, lambda cfg: None, say)[0]
    elif place.kind == "safetensors":
        with tempfile.TemporaryDirectory(prefix="glassbox-weights-") as work:
            (Path(work) / "config.json").symlink_to(place.path.with_name("config.json"))
            (Path(work) / "model.safetensors").symlink_to(place.path)
            yield Path(work)
    else:
        yield place.path


def write_folder(model: Transformer, folder: Path) -> None:
    """Write a model of LLaMA's shape: config.json, and model.safetensors in float32."""
    config = llama_config(model.cfg)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tensors = {name: tensor.float().cpu().contiguous() for name, tensor in model.state_dict().items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def llama_config(cfg: ModelConfig) -> dict[str, Any]:
    """The config.json that describes this model; refused when LLaMA's fields cannot."""
    a, rope = cfg.attention, cfg.rope or Rope(rotary_dim=cfg.head_dim)
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": cfg.vocab_size,
        "hidden_size": cfg.d_model,
        "num_hidden_layers": cfg.n_layers,
        "num_attention_heads": cfg.n_heads,
        "num_key_value_heads": cfg.n_kv_heads,
        "head_dim": cfg.head_dim,
        "intermediate_size": cfg.d_ff,
        "hidden_act": cfg.ffn.activation,
        "max_position_embeddings": cfg.max_positions,
        "rms_norm_eps": cfg.norm.eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": rope.base},
        "tie_word_embeddings": cfg.tied,
        "attention_bias": isinstance(a, GroupedQuery) and a.qkv_bias,
        "mlp_bias": cfg.ffn.bias,
    }
    try:
        described, _ = config_from_hf(config)
    except ConfigError:
        described = None
    if described != cfg:
        raise CheckpointError(
            "random weights of this family are not written to a file",
            expected="a model of LLaMA's shape, or one opened from a file",
            where="the copy for another program",
            todo="Open a checkpoint of this family instead.",
        )
    return config
