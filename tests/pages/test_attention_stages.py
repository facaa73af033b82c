"""The section "One head, stage by stage": its payload is the running model's matrices, each derived a second time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from figures.payload import unpack
from lmcore.checkpoint import Loaded, load_pretrained
from lmcore.trace import Capture
from tests.lmcore.family_models import VARIANTS, build
from tests.pages.test_every_page import open_page
from ui import state

TEXT = "abcabc the the"
LONG = ("word " * 103)[:511]


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load_pretrained("builtin", dtype="float32", device="cpu")


def stages(**link: str) -> tuple[dict[str, Any], dict[str, np.ndarray], AppTest]:
    at = open_page("attention", **link)
    assert not at.exception
    assert [e.value for e in at.error] == []
    [found] = [e for e in at.get("bidi_component") if e.proto.component_name.endswith("glassbox_stages")]
    meta, arrays = unpack(found.proto.bytes)
    return meta, dict(zip(meta["names"], arrays, strict=True)), at


def turned(x: np.ndarray, base: float) -> np.ndarray:
    """RoPE as complex numbers: pair (i, i + d/2) of position p times exp(1j p base^(-2i/d))."""
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[-2])[:, None] * base ** (-np.arange(half) / half)
    z = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angle)
    return np.concatenate([z.real, z.imag], -1)


@pytest.mark.parametrize(("layer", "head"), [(0, 0), (3, 3), (2, 1)])
def test_every_stage_is_derived_twice_from_the_weights(loaded: Loaded, layer: int, head: int) -> None:
    meta, held, _ = stages(prompt=TEXT, layer=str(layer), head=str(head))
    assert loaded.tokenizer is not None
    ids = torch.tensor([loaded.tokenizer.encode(TEXT)])
    trace = loaded.model.forward(ids, capture=Capture.of("resid_pre", layers=[layer])).trace
    assert trace is not None
    x = trace.layers[layer]["resid_pre"][0].numpy().astype(np.float64)
    weights = {
        name: p.detach().numpy().astype(np.float64) for name, p in loaded.model.model.layers[layer].named_parameters()
    }
    normed = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * weights["input_layernorm.weight"]
    kv, first = head // 2, head // 2 * 2
    part = {h: slice(16 * h, 16 * h + 16) for h in range(4)}
    q = np.stack([normed @ weights["self_attn.q_proj.weight"][part[h]].T for h in (first, first + 1)])
    k = normed @ weights["self_attn.k_proj.weight"][part[kv]].T
    v = normed @ weights["self_attn.v_proj.weight"][part[kv]].T
    rot_q, rot_k = turned(q, 10_000.0), turned(k, 10_000.0)
    raw = rot_q @ rot_k.T
    masked = np.where(np.tri(len(x), dtype=bool), raw / 4, -np.inf)
    exp = np.exp(masked - masked.max(-1, keepdims=True))
    pattern = exp / exp.sum(-1, keepdims=True)
    z = pattern @ v
    write = np.stack([z[n] @ weights["self_attn.o_proj.weight"][:, part[first + n]].T for n in range(2)])
    expected = {
        "normed": normed,
        "q": q,
        "k": k,
        "v": v,
        "rot_q": rot_q,
        "rot_k": rot_k,
        "raw": raw,
        "scaled": raw / 4,
        "masked": masked,
        "softmax": pattern,
        "z": z,
        "write": write,
    }
    assert (meta["layer"], meta["first_head"], meta["heads"]) == (layer, first, 2)
    for name, array in expected.items():
        np.testing.assert_allclose(held[name], array, rtol=1e-4, atol=1e-4, err_msg=name)
    np.testing.assert_allclose(held["resid_pre"] + held["attn_out"], held["resid_mid"], atol=1e-6)
    np.testing.assert_allclose(held["row_sums"], 1, atol=1e-6)
    np.testing.assert_array_equal(held["allowed"], np.tri(len(x)))


def test_what_one_group_and_the_other_write_is_what_attention_writes() -> None:
    _, first, _ = stages(prompt=TEXT, layer="1", head="0")
    _, second, _ = stages(prompt=TEXT, layer="1", head="3")
    np.testing.assert_allclose(first["write"].sum(0) + second["write"].sum(0), first["attn_out"], atol=1e-5)
    np.testing.assert_array_equal(first["normed"], second["normed"])
    assert np.abs(first["k"] - second["k"]).max() > 0.1


def test_it_begins_where_the_maps_begin() -> None:
    meta, _, at = stages(prompt=TEXT)
    [maps] = [e for e in at.get("bidi_component") if e.proto.component_name.endswith("glassbox_attention")]
    view = unpack(maps.proto.bytes)[0]["view"]
    assert meta["view"] == {name: view[name] for name in ("layer", "head", "query", "key")}


def test_512_tokens_are_cut_round_the_query_of_the_link() -> None:
    meta, held, _ = stages(prompt=LONG, layer="2", head="1", query="77")
    assert 77 in meta["positions"]
    assert len(meta["positions"]) == 128
    assert len(meta["tokens"]) == 512
    np.testing.assert_allclose(held["row_sums"], 1, atol=1e-5)
    assert meta["notes"]


def test_a_bad_link_is_brought_into_range() -> None:
    meta, _, _ = stages(prompt="ab", layer="99", head="-1", query="x")
    assert meta["layer"] == 3
    assert meta["view"]["query"] == 2


FAMILIES = {
    "gpt2": (1, "no RoPE"),
    "bloom": (1, "ALiBi"),
    "deepseek_v2": (1, "latent of 12 numbers"),
    "llama": (2, None),
    "gpt_oss": (None, "sum to less than 1"),
    "olmo2": (None, None),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_other_families_show_what_they_have(name: str, tmp_path: Path) -> None:
    heads, said = FAMILIES[name]
    build(VARIANTS[name]).save_pretrained(tmp_path)
    meta, held, _ = stages(model=state.TYPED, path=str(tmp_path), prompt="5 6 7 5 6 8")
    if heads is not None:
        assert meta["heads"] == heads
    assert said is None or any(said in note for note in meta["notes"])
    allowed = held["allowed"] == 1
    np.testing.assert_allclose(held["rot_q"] @ held["rot_k"].T, held["raw"], rtol=1e-4, atol=1e-4)
    weights = np.where(allowed, np.exp(held["masked"] - held["peaks"][..., None]), 0) / held["denominators"][..., None]
    if name != "gpt_oss":
        np.testing.assert_allclose(weights, held["softmax"], atol=1e-5)
    else:
        assert (held["row_sums"] < 1).all()
    np.testing.assert_allclose(held["softmax"] @ held["v"], held["z"], atol=1e-4)
    assert (held["softmax"][:, ~allowed] == 0).all()


def test_a_single_token_reads_itself(bare_folder: str) -> None:
    meta, held, _ = stages(model=state.TYPED, path=bare_folder, prompt="15")
    assert meta["positions"] == [0]
    assert (held["softmax"] == 1).all()
    np.testing.assert_array_equal(held["z"][0], held["v"])
