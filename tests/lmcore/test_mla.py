"""Multi-head latent attention: both paths, and what the cache holds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lmcore.cache import KVCache
from lmcore.checkpoint import load_pretrained
from lmcore.costs import kv_cache_bytes
from lmcore.mla import LatentAttention
from lmcore.model import Transformer
from lmcore.shapes import cache_shapes
from lmcore.specs import Latent
from lmcore.trace import Capture
from tests.lmcore.family_models import VARIANTS, build

MLA = ("deepseek_v2", "deepseek_v2 greedy", "deepseek_v3")
TOKENS = torch.randint(3, 96, (2, 15), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module", params=MLA)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Transformer:
    folder = tmp_path_factory.mktemp("mla")
    build(VARIANTS[request.param]).save_pretrained(folder)
    return load_pretrained(Path(folder), dtype="float32", device="cpu").model


def with_path(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Every query takes this path, whatever its length."""
    chosen = getattr(LatentAttention, name)
    for path in ("absorbed", "expanded"):
        monkeypatch.setattr(LatentAttention, path, chosen)


def test_absorbed_equals_expanded(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every layer's output, relative to its largest number, and written out as well as by the fused kernel."""
    results = {}
    for name in ("absorbed", "expanded"):
        with monkeypatch.context() as patch:
            with_path(patch, name)
            captured = model(TOKENS, capture=Capture.of("z", "pattern", "resid_post"))
            results[name] = (captured, model(TOKENS).logits)
    one, other = results["absorbed"], results["expanded"]
    assert (one[1] - other[1]).abs().max() <= 1e-5 * max(1.0, float(other[1].abs().max()))
    for layer, stages in one[0].trace.layers.items():
        for stage in ("z", "pattern", "resid_post"):
            theirs = other[0].trace.layers[layer][stage]
            assert (stages[stage] - theirs).abs().max() <= 1e-5 * max(1.0, float(theirs.abs().max()))


def test_a_step_reads_the_latents_and_a_prompt_does_not(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    for name in ("absorbed", "expanded"):
        path = getattr(LatentAttention, name)

        def recorded(self, *args, name=name, path=path):
            taken.append(name)
            return path(self, *args)

        monkeypatch.setattr(LatentAttention, name, recorded)
    cache = KVCache.empty(model.cfg, 15, batch=2)
    model(TOKENS[:, :12], cache=cache)
    model(TOKENS[:, 12:13], cache=cache)
    assert taken == ["expanded"] * model.cfg.n_layers + ["absorbed"] * model.cfg.n_layers


def test_the_cache_holds_the_latent_and_one_rotary_key(model: Transformer) -> None:
    a = model.cfg.attention
    assert isinstance(a, Latent)
    assert cache_shapes(model.cfg, 0) == {"latent": (1, a.kv_rank), "rope_key": (1, a.rope_dim)}
    cache = KVCache.empty(model.cfg, 20, batch=2)
    model(TOKENS, cache=cache)
    per_token = (a.kv_rank + a.rope_dim) * 4
    assert kv_cache_bytes(model.cfg, context=15, batch=2, itemsize=4) == (per_token * 15 * 2,) * model.cfg.n_layers
    assert cache.used_bytes == per_token * 15 * 2 * model.cfg.n_layers
    assert cache.allocated_bytes == per_token * 20 * 2 * model.cfg.n_layers
    # Keys and values of every head would be more than four times as many numbers.
    assert a.kv_rank + a.rope_dim < a.n_heads * (a.head_dim + a.value_dim) / 4


def test_stages_of_cached_steps_are_those_of_one_forward(model: Transformer) -> None:
    """Keys and values that the absorbed path never forms are shown all the same."""
    names = ("q", "k", "v", "rot_q", "rot_k", "pattern", "z")
    whole = model(TOKENS, capture=Capture.of(*names)).trace
    cache = KVCache.empty(model.cfg, 15, batch=2)
    model(TOKENS[:, :10], cache=cache)
    step = model(TOKENS[:, 10:], cache=cache, capture=Capture.of(*names)).trace
    assert whole is not None
    assert step is not None
    for layer, stages in step.layers.items():
        for name in names:
            ours, theirs = stages[name], whole.layers[layer][name][:, :, 10:]
            assert ours.shape == theirs.shape, name
            assert (ours - theirs).abs().max() <= 2e-5 * max(1.0, float(theirs.abs().max())), name


def test_values_mixed_from_keys_would_show(model: Transformer) -> None:
    """Negative control: W_UV's rows read as W_UK's give another z."""
    wrong = Transformer(model.cfg)
    state = model.state_dict()
    wrong.load_state_dict({name: t.roll(1, 0) if "kv_b_proj" in name else t for name, t in state.items()})
    assert (wrong(TOKENS).logits - model(TOKENS).logits).abs().max() > 0.1
