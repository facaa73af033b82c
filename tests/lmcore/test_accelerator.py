"""lmcore on an accelerator against lmcore on the CPU: one forward of every family, and everything built on forwards.

Skipped where there is none. GLASSBOX_TEST_DEVICE=cpu runs the same tests on the CPU, to see that they are sound.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable

import numpy as np
import pytest
import torch

from lmcore import extrapolate, fidelity, measure, surgery
from lmcore.cache import KVCache
from lmcore.cache_steps import cache_steps
from lmcore.checkpoint import load_pretrained
from lmcore.config import Rope
from lmcore.decode import Decoder
from lmcore.device import available_bytes, devices
from lmcore.effects import attribute_logit, logit_lens, planted_scores
from lmcore.families import config_from_hf
from lmcore.kv_costs import kv_cache_bytes
from lmcore.machine import measure_machine
from lmcore.masks import Mask
from lmcore.model import Transformer
from lmcore.prefill import chunks, reusable
from lmcore.quantise import How, formats, quantised_cache, quantised_cache_bytes
from lmcore.relative import slide
from lmcore.sampling import Sampler
from lmcore.speculative import ModelDraft, PromptLookup, SpeculativeDecoder
from lmcore.teaching import FAMILY, heldout_text
from lmcore.timed import cache_by_step, timed
from lmcore.trace import Capture, Edits
from tests.lmcore.family_models import VARIANTS, config_of, sharpen
from tests.lmcore.tiny import BASE
from tests.needs import need

TOKENS = [5, 17, 3, 88, 42, 9, 61, 30, 17, 3, 88, 7]
CAPTURE = Capture.of("q", "k", "v", "z", "pattern", "attn_out", "ffn_out", "resid_post")


@pytest.fixture(scope="module")
def device() -> str:
    found = os.environ.get("GLASSBOX_TEST_DEVICE") or devices()[0]
    need("accelerator", "GLASSBOX_TEST_DEVICE" in os.environ or found != "cpu", "PyTorch finds neither CUDA nor MPS")
    torch.set_float32_matmul_precision("highest")
    return found


@pytest.fixture(scope="module")
def pair(device: str) -> tuple[Transformer, Transformer]:
    """One tiny model on the CPU and on the accelerator."""
    cfg, _ = config_from_hf({"model_type": "llama"} | BASE)
    model = Transformer(cfg).requires_grad_(False)
    sharpen(model)
    return model, copy.deepcopy(model).to(device)


def row(model: Transformer) -> torch.Tensor:
    return torch.tensor([TOKENS], device=model.device)


def noise(model: Transformer) -> float:
    """How far float32 takes the logits from float64's, on the CPU."""
    exact = copy.deepcopy(model).double()(row(model)).logits
    return float((model(row(model)).logits.double() - exact).abs().max())


def furthest(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.double().cpu() - other.double().cpu()).abs().max())


@pytest.mark.parametrize("name", VARIANTS)
def test_every_family_has_the_cpus_logits_whole_and_cached(device: str, name: str) -> None:
    cfg, _ = config_from_hf(config_of(VARIANTS[name]).to_dict())
    model = Transformer(cfg).requires_grad_(False)
    sharpen(model)
    there = copy.deepcopy(model).to(device)
    expected, allowed = model(row(model)).logits, max(1e-4, 10 * noise(model))
    assert furthest(there(row(there)).logits, expected) <= allowed
    assert furthest(there(row(there), capture=CAPTURE).logits, expected) <= allowed
    cache = KVCache.empty(cfg, len(TOKENS), device=device)
    parts = [there(part, cache=cache).logits for part in row(there).split([6, 1, 1, 4], dim=1)]
    assert furthest(torch.cat(parts, dim=1), expected) <= allowed
    assert cache.used_bytes == sum(kv_cache_bytes(cfg, context=len(TOKENS), itemsize=4))
    other = row(there).roll(1, dims=1)
    assert furthest(there(other).logits, expected) > 10 * allowed


EDITS = {
    "window": Edits(mask=Mask(window=3, sinks=1)),
    "prefix": Edits(mask=Mask(prefix=5)),
    "packed": Edits(mask=Mask(documents=(4, 9))),
    "rope": Edits(rope=Rope(rotary_dim=12, base=500.0)),
    "interleaved": Edits(pairing="interleaved", rotate_values=True),
    "float16": Edits(softmax="unsafe_float16"),
    "after": Edits(softmax="mask_after"),
    "ablated": Edits(zero_heads=frozenset({(1, 2)}), zero_ffn=frozenset({0})),
}


@pytest.mark.parametrize("name", EDITS)
def test_experiments(pair: tuple[Transformer, Transformer], name: str) -> None:
    here, there = (model.forward(row(model), edits=EDITS[name], capture=CAPTURE) for model in pair)
    assert here.trace is not None
    assert there.trace is not None
    bound = 0.05 if name == "float16" else 1e-3
    assert furthest(here.logits, there.logits) <= bound
    assert furthest(here.trace.layers[2]["pattern"], there.trace.layers[2]["pattern"]) <= bound
    if name != "float16":  # its error is of the size of what two devices differ by in float16
        assert furthest(here.logits, pair[0](row(pair[0])).logits) > 2 * bound


def decoded(model: Transformer) -> tuple[int, ...]:
    decoder = Decoder(model, TOKENS, Sampler(temperature=0.9, top_k=40), seed=3)
    first = [decoder.step().token for _ in range(6)]
    decoder.rewind(3)
    assert [decoder.step().token for _ in range(3)] == first[3:]
    return decoder.tokens


def speculated(model: Transformer) -> list[int]:
    sampler = Sampler(temperature=0.9)
    found = []
    for draft in (PromptLookup(model.cfg.vocab_size), ModelDraft(model, sampler, 1, depth=2)):
        decoder = SpeculativeDecoder(model, TOKENS, sampler, draft, seed=1)
        for _ in range(3):
            decoder.round()
        found += decoder.tokens
    return found


def explained(model: Transformer) -> list[np.ndarray]:
    trace = model(row(model), capture=CAPTURE).trace
    t = {
        name: np.stack([trace.layers[n][name][0].cpu().numpy() for n in range(3)])
        for name in ("z", "attn_out", "ffn_out", "resid_post")
    }
    parts = attribute_logit(
        model,
        embedding=trace.embedding[0, 7].cpu().numpy(),
        z=t["z"][:, :, 7],
        attn_out=t["attn_out"][:, 7],
        ffn_out=t["ffn_out"][:, 7],
        resid=t["resid_post"][-1, 7],
        token=41,
    )
    assert abs(parts.difference) < 1e-3
    lens, planted = logit_lens(model, t["resid_post"][:, 7], 41), planted_scores(model)
    return [parts.heads, parts.ffn, lens.probs, planted.induction, planted.previous]


def operated(model: Transformer) -> list[torch.Tensor]:
    merged = surgery.merge_kv_heads(model, 1)
    low = surgery.cut(model, surgery.factorise(model), 9)
    return [merged(row(model)).logits, low(row(model)).logits]


def quantised(model: Transformer) -> list[np.ndarray]:
    found = []
    for storage in formats(12).values():
        how = How(storage, 2)
        cache = quantised_cache(model.cfg, len(TOKENS), how, device=model.device)
        found.append(fidelity.read_through(model, TOKENS, cache))
        assert cache.used_bytes == sum(quantised_cache_bytes(model.cfg, how, context=len(TOKENS)))
    return found


def prefilled(model: Transformer) -> list[torch.Tensor]:
    cache = KVCache.empty(model.cfg, 32, device=model.device)
    for _ in chunks(model, TOKENS, cache=cache, size=5):
        pass
    again = reusable(cache, TOKENS, [*TOKENS[:7], 1, 2])
    assert again.length == 7
    return [model(torch.tensor([[1, 2]], device=model.device), cache=again).logits]


def extrapolated(model: Transformer) -> list[np.ndarray]:
    texts = np.array([TOKENS * 2, TOKENS[::-1] * 2], dtype=np.int64)
    rope = Rope(rotary_dim=12, base=10_000.0, type="linear", factor=2.0)
    read = extrapolate.attention_by_position(model, texts[0], rope)
    return [extrapolate.token_losses(model, texts, rope, piece=7), read.entropy, read.first]


def relative(model: Transformer) -> list[np.ndarray]:
    layer = model(row(model), capture=CAPTURE).trace.layers[1]
    q, k = layer["q"][0, 0, 5].cpu(), layer["k"][0, 0, 2].cpu()
    assert model.cfg.rope is not None
    return list(slide(q, k, model.cfg.rope, offset=3, positions=torch.arange(0, 2000, 100)).products.values())


WORK: dict[str, Callable[[Transformer], object]] = {
    work.__name__: work
    for work in (decoded, speculated, explained, operated, quantised, prefilled, extrapolated, relative)
}


@pytest.mark.parametrize("name", WORK)
def test_what_is_built_on_forwards(pair: tuple[Transformer, Transformer], name: str) -> None:
    here, there = (WORK[name](model) for model in pair)
    if name in ("decoded", "speculated"):
        assert here == there
        return
    assert isinstance(here, list)
    assert isinstance(there, list)
    # A code of a quantised cache may round to its neighbour, and bf16 positions are coarse by themselves.
    bound = {"quantised": 0.05, "relative": 0.02}.get(name, 2e-3)
    for one, other in zip(here, there, strict=True):
        np.testing.assert_allclose(torch.as_tensor(one).cpu(), torch.as_tensor(other).cpu(), atol=bound)


def test_counted_work_and_bytes_are_the_cpus(pair: tuple[Transformer, Transformer]) -> None:
    here, there = (measure.measured_pass(model, TOKENS) for model in pair)
    assert (here.flops, here.cache_used_bytes, here.rows) == (there.flops, there.cache_used_bytes, there.rows)
    assert [held[:] for held in cache_by_step(pair[0], TOKENS)] == [held[:] for held in cache_by_step(pair[1], TOKENS)]
    assert cache_steps(pair[0], TOKENS, 4) == cache_steps(pair[1], TOKENS, 4)


def test_the_device_is_measured(device: str, pair: tuple[Transformer, Transformer]) -> None:
    machine = measure_machine(device, torch.float32, budget_s=0.1)
    assert machine.bytes_per_s > 1e9
    assert machine.flops_per_s > 1e9
    assert available_bytes(device) > 2**28
    timing = timed(pair[1], TOKENS, budget_s=0.05)
    # No forward is faster than the roof of the device that it ran on.
    assert timing.decode_s > timing.decode.seconds(machine.roof)


@pytest.mark.parametrize("name", [model.name for model in FAMILY])
def test_the_teaching_models_open_there_and_know_the_text(device: str, name: str) -> None:
    source = f"teaching:{name}"
    here = load_pretrained(source, dtype="float32", device="cpu")
    there = load_pretrained(source, device=device)
    assert there.model.dtype == (torch.bfloat16 if device.startswith("cuda") else torch.float32)
    assert here.tokenizer is not None
    ids = np.array([here.tokenizer.encode(heldout_text())[:129]], dtype=np.int64)[:, :128]
    one, other = (float(np.nanmean(extrapolate.token_losses(loaded.model, ids))) for loaded in (here, there))
    assert other == pytest.approx(one, abs=0.05)
