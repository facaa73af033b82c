"""The architecture diagram's payload: facts of the config, shapes of the prompt, the measured lengths unchanged."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

from figures.overview import MAX_VALUES, arch_payload, ffn_name
from figures.payload import unpack
from figures.tokens import token_parts
from lmcore.config import Dense, GroupedQuery, ModelConfig, Norm
from lmcore.costs import component_of
from lmcore.shapes import param_shapes
from lmcore.specs import MoE, RelativeBias, Rope, Wiring


def config(**changes: Any) -> ModelConfig:
    fields: dict[str, Any] = {
        "vocab_size": 300,
        "d_model": 48,
        "n_layers": 3,
        "max_positions": 64,
        "attention": GroupedQuery(n_heads=6, n_kv_heads=2, head_dim=16, scale=0.25),
        "ffn": Dense(d_ff=80),
        "norm": Norm(),
        "rope": None,
        "tied": True,
    }
    fields |= changes
    fields.setdefault("layer_types", ("full",) * fields["n_layers"])
    return ModelConfig(**fields)


def nodes(meta: dict[str, Any]) -> dict[str, dict[str, Any]]:
    inside = [node for sublayer in meta["block"]["sublayers"] for node in sublayer]
    listed = [*meta["before"], *inside, *meta["after"], meta["sampler"]]
    return {node["id"]: node for node in listed}


def drawn(cfg: ModelConfig, tokens: int = 5, **given: Any) -> tuple[dict[str, Any], np.ndarray]:
    meta, (norms,) = unpack(arch_payload(cfg, tokens=tokens, pages=given.pop("pages", {}), **given))
    return meta, norms


def counted(cfg: ModelConfig) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, shape in param_shapes(cfg).items():
        found[component_of(name)] = found.get(component_of(name), 0) + prod(shape)
    return found


def test_shapes_are_those_of_the_prompt():
    by_id = nodes(drawn(config())[0])
    assert by_id["ids"]["lines"] == ["(1, 5)"]
    assert by_id["attention"]["lines"] == ["q (1, 6, 5, 16)", "k, v (1, 2, 5, 16)", "weights (1, 6, 5, 5)"]
    assert by_id["ffn"]["lines"] == ["hidden (1, 5, 80)"]
    assert by_id["logits"]["lines"] == ["(1, 5, 300)"]


@pytest.mark.parametrize("tied", [True, False])
def test_parameters_on_the_nodes_add_up_to_the_shape_table(tied: bool):
    cfg = config(tied=tied)
    by_id = nodes(drawn(cfg)[0])
    number = {key: int(node["parameters"].replace("\u2006", "")) for key, node in by_id.items() if node["parameters"]}
    inside = sum(number[key] for key in ("attention_norm", "attention", "ffn_norm", "ffn"))
    total = cfg.n_layers * inside + number["embedding"] + number["final_norm"] + number["head"]
    assert total == sum(prod(shape) for shape in param_shapes(cfg).values())
    assert by_id["head"]["detail"] == ("tied" if tied else "48 × 300")


@pytest.mark.parametrize("tied", [True, False])
def test_shares_stand_beside_their_counts_the_largest_first(tied: bool):
    cfg = config(tied=tied)
    shares = drawn(cfg, counted=counted(cfg))[0]["shares"]
    assert all(share["calculated"] == share["counted"] for share in shares)
    sizes = [share["calculated"] for share in shares]
    assert sizes == sorted(sizes, reverse=True)
    names = {share["name"] for share in shares}
    assert ("embedding = unembedding" in names, "unembedding" in names) == (tied, not tied)


def test_a_miscounted_tensor_shows():
    cfg = config()
    shares = drawn(cfg, counted=counted(cfg) | {"norms": 1})[0]["shares"]
    assert [share["name"] for share in shares if share["calculated"] != share["counted"]] == ["norms"]


def test_without_weights_nothing_is_counted():
    assert {share["counted"] for share in drawn(config())[0]["shares"]} == {None}


@pytest.mark.parametrize(
    ("heads", "kv", "detail"), [(6, 6, "6 heads × 16"), (6, 2, "6 Q, 2 KV × 16"), (6, 1, "6 Q, 1 KV × 16")]
)
def test_the_three_ways_of_sharing_heads_read_differently(heads: int, kv: int, detail: str):
    cfg = config(attention=GroupedQuery(n_heads=heads, n_kv_heads=kv, head_dim=16, scale=0.25))
    assert nodes(drawn(cfg)[0])["attention"]["detail"] == detail


ROPE = Rope(rotary_dim=16)


@pytest.mark.parametrize(
    ("changes", "node", "text"),
    [
        ({"rope": ROPE}, "attention", "RoPE on q and k"),
        ({"rope": ROPE, "nope_layers": (2,)}, "attention", "RoPE in 2 of 3 layers"),
        ({"learned_positions": 2048}, "embedding", "and 2\u2006048 positions"),
        ({"sinusoidal": True}, "embedding", "and sines of the position"),
        ({"alibi": 8.0}, "attention", "ALiBi bias"),
        ({"relative_bias": RelativeBias()}, "attention", "T5’s bias by distance"),
        ({}, "attention", "no positions but the mask"),
    ],
)
def test_positions_stand_where_they_come_in_and_lead_to_their_page(changes: dict[str, Any], node: str, text: str):
    found = nodes(drawn(config(**changes), pages={"positions": "positions"})[0])
    assert {key: one["positions"] for key, one in found.items() if one["positions"]} == {
        node: {"id": "positions", "text": text, "page": "positions"}
    }


def test_windowed_layers_are_counted():
    cfg = config(layer_types=("sliding", "full", "sliding"), window=8)
    assert nodes(drawn(cfg)[0])["attention"]["lines"][-1] == "window 8 in 2 of 3 layers"


@pytest.mark.parametrize(
    ("ffn", "name"),
    [
        (Dense(d_ff=8), "SwiGLU"),
        (Dense(d_ff=8, activation="gelu_tanh"), "GeGLU"),
        (Dense(d_ff=8, activation="relu"), "ReGLU"),
        (Dense(d_ff=8, gated=False), "FFN"),
    ],
)
def test_feed_forward_by_its_name(ffn: Dense, name: str):
    assert ffn_name(config(ffn=ffn)) == name


def test_only_nodes_with_a_page_link():
    by_id = nodes(drawn(config(), pages={"attention": "attention", "sampler": "decode"})[0])
    assert {key: node["page"] for key, node in by_id.items() if node["page"]} == {
        "attention": "attention",
        "sampler": "decode",
    }


def test_residual_lengths_arrive_as_they_are():
    lengths = np.random.default_rng(0).random((4, 5), np.float32)
    pieces = [token_parts(b"a")] * 5
    meta, norms = drawn(config(), residual=lengths, pieces=pieces)
    np.testing.assert_array_equal(norms, lengths)
    assert meta["positions"] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("tokens", [0, 1])
def test_no_token_and_one_token(tokens: int):
    meta, norms = drawn(config(), tokens=tokens, residual=np.ones((4, tokens), np.float32))
    assert norms.shape == (4, tokens)
    assert meta["positions"] == list(range(tokens))


def test_a_long_prompt_keeps_the_first_and_the_last_positions_within_the_bound():
    cfg = config(n_layers=126)
    tokens = 4096
    lengths = np.arange(127 * tokens, dtype=np.float32).reshape(127, tokens)
    meta, norms = drawn(cfg, tokens=tokens, residual=lengths)
    assert norms.size <= MAX_VALUES
    assert meta["positions"][0] == 0
    assert meta["positions"][-1] == tokens - 1
    np.testing.assert_array_equal(norms, lengths[:, meta["positions"]])


@pytest.mark.parametrize(
    ("wiring", "norms"),
    [
        (Wiring(), 2),
        (Wiring(order="sandwich"), 4),
        (Wiring(order="output"), 2),
        (Wiring(parallel=True), 2),
        (Wiring(parallel=True, shared_norm=True), 1),
    ],
)
@pytest.mark.parametrize("norm", [Norm(), Norm(kind="layer", bias=True)])
def test_a_block_is_drawn_as_its_family_wires_it(wiring: Wiring, norms: int, norm: Norm):
    """As many norms as the block has, and the parameters of its nodes are all of the block's."""
    block = drawn(config(wiring=wiring, norm=norm))[0]["block"]
    inside = [node for sublayer in block["sublayers"] for node in sublayer]
    assert [node["detail"] for node in inside].count("RMS" if norm.kind == "rms" else "Layer") == norms
    total = sum(int(node["parameters"].replace("\u2006", "")) for node in inside)
    assert total == int(block["parameters"].replace("\u2006", ""))
    assert ("what enters the block" in block["note"]) == wiring.parallel


def test_a_mixture_shows_its_experts_and_not_an_average():
    moe = MoE(n_experts=4, top_k=2, d_ff=24, shared_d_ff=16)
    meta, _ = drawn(config(moe=moe, moe_layers=(1, 2)))
    node = nodes(meta)["ffn"]
    assert node["name"] == "experts"
    assert node["lines"] == ["2 of 4 for each token", "and one for all, 16 wide"]
    assert int(node["parameters"].replace("\u2006", "")) == 4 * 3 * 48 * 24 + 3 * 48 * 16 + 4 * 48
    assert meta["block"]["note"] == "1 of 3 are dense, d_ff 80"
