"""FLOPs of every shipped config against PyTorch's own counter, on the meta device: widths as they are, no memory.

One layer of each kind that a config has is run, not all of them: the formula's sum over layers is tested apart. Two
parts of a forward ask for values, which meta tensors have not: which rows of the mask are empty (none is under a causal
mask), and which experts were chosen. The stand-in below sends every token through the first k experts, as many as the
router would choose; that a routed mixture costs the same is counted on real tensors in the last test.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lmcore import presets
from lmcore.attention import Reads
from lmcore.cache import KVCache
from lmcore.checkpoint.load import on_meta
from lmcore.config import ModelConfig
from lmcore.families import config_from_hf
from lmcore.ffn import Mixture
from lmcore.flops import decode_flops, forward_flops, prefill_flops
from lmcore.layer_kinds import layer_kinds
from lmcore.measure import FlopCount
from lmcore.model import Transformer
from lmcore.trace import NO_EDITS, Capture
from tests.lmcore.family_models import VARIANTS, build

NAMES = [preset.name for preset in presets.PRESETS]


def one_of_each_kind(cfg: ModelConfig) -> ModelConfig:
    """The same model with one layer of every kind, and with few experts beyond the chosen ones: they cost no FLOPs
    but those of the router."""
    kinds = layer_kinds(cfg)
    sparse = tuple(place for place, kind in enumerate(kinds) if cfg.moe is not None and kind.ffn == cfg.moe)
    moe = cfg.moe and replace(cfg.moe, groups=1, top_groups=1)
    types = tuple(kind.type for kind in kinds)
    return cfg.changed(n_layers=len(kinds), layer_types=types, moe=moe, moe_layers=sparse, nope_layers=())


def send_to_the_first(self: Mixture, x: torch.Tensor, tap: object) -> torch.Tensor:
    """What a mixture costs: the router, the top k experts and the shared one for every token."""
    flat = x.flatten(0, 1)
    self.gate(flat)
    out = sum(self.experts[index](flat) for index in range(self.spec.top_k))
    if self.spec.shared_d_ff:
        out = out + self.shared_experts(flat)
    if self.spec.shared_gate:
        self.shared_expert_gate(flat)
    return out.view_as(x)


@pytest.fixture(autouse=True)
def _no_values_on_meta(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reads, "blind", None)


def counted(model: Transformer, tokens: int, cache: KVCache, kept: int) -> int:
    """FLOPs of a forward with its attention written out: the counter sees nothing inside a fused kernel."""
    held = cache.length
    ids = torch.zeros(1, tokens, dtype=torch.long, device="meta")
    at = torch.arange(held, held + tokens, device="meta")
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        x = model._blocks(ids, at, held + tokens, cache, Capture.of("pattern"), NO_EDITS, None, None)
        model.unembed(x[:, -kept:])
    return counter.get_total_flops()


@pytest.mark.parametrize("name", NAMES)
def test_formula_equals_torchs_counter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prefill of 9 tokens with the last one's logits, then one token after them."""
    cfg = one_of_each_kind(presets.shipped(name).config)
    if cfg.moe is not None:
        monkeypatch.setattr(Mixture, "forward", send_to_the_first)
    model = on_meta(cfg)
    cache = KVCache.empty(cfg, 16, device="meta")
    assert counted(model, 9, cache, 1) == sum(prefill_flops(cfg, tokens=9, logits="last").values())
    assert counted(model, 1, cache, 1) == sum(decode_flops(cfg, position=9).values())


def test_all_logits_cost_more() -> None:
    cfg = one_of_each_kind(presets.shipped("gemma-3-270m").config)
    found = counted(on_meta(cfg), 9, KVCache.empty(cfg, 16, device="meta"), 9)
    assert found == sum(prefill_flops(cfg, tokens=9, logits="all").values())
    assert found - sum(prefill_flops(cfg, tokens=9).values()) == 8 * 2 * cfg.d_model * cfg.vocab_size


@pytest.mark.parametrize("name", NAMES)
def test_layers_add_up(name: str) -> None:
    """The whole model costs what its kinds of layers do, each as often as it stands, and the head once."""
    cfg = presets.shipped(name).config
    for how in ({"tokens": 5000}, {"tokens": 1, "cached": 4999}, {"tokens": 300, "attention": "useful"}):
        whole = forward_flops(cfg, **how)
        head = whole.pop("logits")
        total = 0
        for kind in layer_kinds(cfg):
            sparse = (0,) if kind.ffn == cfg.moe else ()
            one = forward_flops(cfg.changed(n_layers=1, layer_types=(kind.type,), moe_layers=sparse), **how)
            assert one.pop("logits") == head
            total += kind.count * sum(one.values())
        assert sum(whole.values()) == total


@pytest.mark.parametrize("family", ["mixtral", "qwen2_moe", "deepseek_v3", "gpt_oss"])
def test_a_routed_mixture_costs_its_chosen_experts(family: str) -> None:
    """On real tensors, with the router's own choice."""
    cfg, _ = config_from_hf(build(VARIANTS[family]).config.to_dict())
    model = Transformer(cfg)
    ids = torch.arange(3, 14)[None] % cfg.vocab_size
    with FlopCount(model) as counter:
        model(ids, capture=Capture.of("pattern"))
    formula = forward_flops(cfg, tokens=ids.shape[1])
    assert counter.flops["ffn"] == formula["ffn"]
    assert sum(counter.flops.values()) == sum(formula.values())
