"""What families share: sizes, the LLaMA-like config that each differs from, window patterns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from lmcore.config import ModelConfig
from lmcore.reading import MAX_EXPERTS, MAX_LAYERS, Reader, rope_from
from lmcore.specs import Dense, GroupedQuery, Norm, QKNorm, Rope

Fields = dict[str, Any]
NO_CHANGE: Mapping[str, Any] = MappingProxyType({})
FULL = {"full_attention": "full", "sliding_attention": "sliding", "chunked_attention": "chunked"}


def sizes(read: Reader, head_dim: int | None = None) -> tuple[int, int, int, int, int]:
    """d_model, layers, query heads, KV heads, head dim; the head dim from the file, the family or D / H."""
    d_model = read.integer("hidden_size", "n_embd", "d_model")
    n_layers = read.integer("num_hidden_layers", "n_layer", "n_layers", most=MAX_LAYERS)
    n_heads = read.integer("num_attention_heads", "n_head", "n_heads")
    n_kv_heads = read.integer("num_key_value_heads", default=n_heads)
    if read.value("head_dim") is not None:
        head_dim = read.integer("head_dim")
    elif head_dim is None:
        if d_model % n_heads:
            raise read.fail(
                "head_dim",
                f"hidden_size {d_model} is no multiple of num_attention_heads {n_heads}, and head_dim is not given",
                "a head_dim, or a multiple",
            )
        head_dim = d_model // n_heads
    if n_heads % n_kv_heads:
        raise read.fail(
            "num_key_value_heads",
            f"num_attention_heads {n_heads} is no multiple of num_key_value_heads {n_kv_heads}",
            "a multiple, since each KV head serves equally many query heads",
        )
    return d_model, n_layers, n_heads, n_kv_heads, head_dim


def llama_like(
    read: Reader,
    *,
    head_dim: int | None = None,
    activation: str = "silu",
    eps: float = 1e-6,
    tied: bool = False,
    attention: Fields | None = None,
    ffn: Fields | None = None,
    norm: Fields | None = None,
    rope: Mapping[str, Any] | Rope | None = NO_CHANGE,
    **fields: Any,
) -> ModelConfig:
    """A config read by LLaMA's spelling, with what the family sets in its parts and fields."""
    d_model, n_layers, n_heads, n_kv_heads, head_dim = sizes(read, head_dim)
    bias = read.flag("attention_bias")
    spec = {"scale": head_dim**-0.5, "qkv_bias": bias, "out_bias": bias} | (attention or {})
    ffn = {"gated": True, "bias": False} | (ffn or {})
    if "d_ff" not in ffn:
        ffn["d_ff"] = read.integer("intermediate_size")
    norm = {"eps": read.number("rms_norm_eps", default=eps, say=True)} if norm is None else norm
    kinds = fields.pop("layer_types", ("full",) * n_layers)
    made: Fields = {
        "vocab_size": read.integer("vocab_size"),
        "d_model": d_model,
        "n_layers": n_layers,
        "max_positions": read.integer("max_position_embeddings", "n_positions", "max_seq_len", default=2048),
        "attention": GroupedQuery(n_heads=n_heads, n_kv_heads=n_kv_heads, head_dim=head_dim, **spec),
        "ffn": Dense(activation=read.activation("hidden_act", "activation_function", default=activation), **ffn),
        "norm": Norm(**norm),
        "tied": read.flag("tie_word_embeddings", default=tied),
        "layer_types": kinds,
    }
    made["rope"] = rope_from(read, head_dim, **rope) if isinstance(rope, Mapping) else rope
    return ModelConfig(**(made | fields))


def layer_count(read: Reader) -> int:
    return read.integer("num_hidden_layers", "n_layer", "n_layers", most=MAX_LAYERS)


def window_fields(
    read: Reader, *, on: bool = True, default: int | None = None, pattern: Callable[[int], bool]
) -> Fields:
    """layer_types and window: the file's own list, or sliding where `pattern(layer)` says so and a window is set."""
    n_layers = layer_count(read)
    missing = "sliding_window" not in read.raw
    window = read.value("sliding_window")
    # transformers writes 0 for a window that is switched off.
    window = default if missing else (read.integer("sliding_window") if on and window is not None else None)
    given = read.listed("layer_types", n_layers)
    if given is not None:
        unknown = [kind for kind in given if not isinstance(kind, str) or kind not in FULL]
        if unknown:
            raise read.fail(
                "layer_types", f"layer type {str(unknown[0])[:40]!r} is not known", "one of " + ", ".join(FULL)
            )
        kinds = tuple(FULL[kind] for kind in given)
        if window is None or not on:
            kinds = tuple("full" if kind == "sliding" else kind for kind in kinds)
        return {"layer_types": kinds, "window": window if "sliding" in kinds else None}
    if window is None or not on:
        return {}
    kinds = tuple("sliding" if pattern(layer) else "full" for layer in range(n_layers))
    return {"layer_types": kinds, "window": window if "sliding" in kinds else None}


def everywhere(layer: int) -> bool:
    return True


def qwen_windows(read: Reader) -> Fields:
    first = 28 if read.value("max_window_layers") is None else read.count("max_window_layers")
    return window_fields(read, on=read.flag("use_sliding_window"), default=4096, pattern=lambda layer: layer >= first)


def expert_count(read: Reader, *keys: str, default: int | None = None) -> int:
    return read.integer(*keys, default=default, most=MAX_EXPERTS)


def norm_per_head(read: Reader, **norm: Any) -> QKNorm:
    return QKNorm(over="head", norm=Norm(eps=read.number("rms_norm_eps", default=1e-6), **norm))


def sparse_layers(read: Reader) -> tuple[int, ...]:
    """Layers with experts: every `decoder_sparse_step`-th, but those of `mlp_only_layers`."""
    step, dense = read.integer("decoder_sparse_step", default=1), read.layers("mlp_only_layers") or ()
    return tuple(layer for layer in range(layer_count(read)) if layer not in dense and (layer + 1) % step == 0)


def layer_norm_fields(read: Reader, *keys: str, bias: bool = True, **more: Any) -> Fields:
    return {"kind": "layer", "bias": bias, "eps": read.number(*keys, default=1e-5), **more}


def layers_without_rope(read: Reader) -> tuple[int, ...]:
    """Layers without RoPE: zeros in `no_rope_layers`, or every `no_rope_layer_interval`-th."""
    n_layers, given = layer_count(read), read.listed("no_rope_layers")
    every = read.integer("no_rope_layer_interval", default=4)
    if not given:
        return tuple(layer for layer in range(n_layers) if (layer + 1) % every == 0)
    if len(given) != n_layers:
        raise read.fail("no_rope_layers", f"it has {len(given)} entries", f"one for each of {n_layers} layers")
    return tuple(layer for layer, rotary in enumerate(given) if not rotary)
