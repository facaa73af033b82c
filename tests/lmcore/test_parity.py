"""lmcore against `transformers`: logits, every layer's residual and weights, greedy tokens, cache; each can fail."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from lmcore.cache import KVCache
from lmcore.checkpoint import load_pretrained
from lmcore.config import Rope
from lmcore.decode import Decoder
from lmcore.model import Transformer
from lmcore.sampling import Sampler
from lmcore.trace import Capture, Edits
from tests.lmcore.tiny import LLAMAS, hf_llama, ours, tiny_tokens

TRACED = Capture.of("pattern", "resid_pre", "resid_post")


@torch.inference_mode()
def reference(model: PreTrainedModel, tokens: Tensor) -> tuple[Tensor, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Logits, residuals before each layer (the last entry is after the final norm), attention weights."""
    out = model(tokens, output_hidden_states=True, output_attentions=True)
    return out.logits, out.hidden_states, out.attentions


def tolerance(model: PreTrainedModel, logits: Tensor, tokens: Tensor) -> float:
    """max(1e-4, 10 x the float32 noise), the noise being the reference's distance from itself in float64."""
    exact = copy.deepcopy(model).double()
    with torch.inference_mode():
        noise = (exact(tokens).logits - logits).abs().max().item()
    return max(1e-4, 10 * noise)


def greedy(model: PreTrainedModel, tokens: Tensor, n: int) -> list[int]:
    """Prompt and n tokens by the reference's own greedy decoding, not stopped by an end token."""
    assert model.generation_config is not None
    model.generation_config.eos_token_id = None
    return model.generate(tokens, max_new_tokens=n, do_sample=False)[0].tolist()


def worst(a: Tensor, b: Tensor) -> float:
    return (a.double() - b.double()).abs().max().item()


@pytest.fixture(params=LLAMAS)
def pair(request: pytest.FixtureRequest) -> tuple[PreTrainedModel, Transformer]:
    model = hf_llama(request.param)
    return model, ours(model)


def test_logits_residuals_and_weights_equal(pair: tuple[PreTrainedModel, Transformer]) -> None:
    theirs, mine = pair
    tokens = tiny_tokens(batch=2)
    logits, residuals, weights = reference(theirs, tokens)
    out = mine(tokens, capture=TRACED)
    assert out.trace is not None
    assert worst(out.logits, logits) <= tolerance(theirs, logits, tokens)
    for layer, stages in out.trace.layers.items():
        assert worst(stages["pattern"], weights[layer]) <= 1e-5
        assert worst(stages["resid_pre"], residuals[layer]) <= 1e-5 * residuals[layer].abs().max()
    assert worst(out.trace.final_normed, residuals[-1]) <= 1e-5 * residuals[-1].abs().max()


def test_both_attention_paths_equal(pair: tuple[PreTrainedModel, Transformer]) -> None:
    _, mine = pair
    tokens = tiny_tokens()
    assert worst(mine(tokens, capture=TRACED).logits, mine(tokens).logits) <= 1e-4


def test_cached_equals_one_forward(pair: tuple[PreTrainedModel, Transformer]) -> None:
    """Prefill in chunks of 5, 1 and 4, then single steps."""
    _, mine = pair
    tokens = tiny_tokens(15)
    cache = KVCache.empty(mine.cfg, 15)
    parts = [mine(part, cache=cache).logits for part in tokens.split([5, 1, 4, 1, 1, 1, 1, 1], dim=1)]
    assert worst(torch.cat(parts, dim=1), mine(tokens).logits) <= 1e-4


def test_greedy_tokens_equal(pair: tuple[PreTrainedModel, Transformer]) -> None:
    theirs, mine = pair
    tokens = tiny_tokens()
    decoder = Decoder(mine, tokens[0].tolist(), Sampler(temperature=0))
    for _ in range(32):
        decoder.step()
    assert list(decoder.tokens) == greedy(theirs, tokens, 32)


def forget_rotation(model: Transformer, tokens: Tensor) -> Tensor:
    return model(tokens, positions=torch.zeros(tokens.shape[1], dtype=torch.long)).logits


def interleave(model: Transformer, tokens: Tensor) -> Tensor:
    """The rows of W_Q and W_K of a half-split file read as if they were interleaved."""
    wrong = copy.deepcopy(model)
    for layer in wrong.model.layers:
        for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj):
            w = projection.weight.data
            halves = w.view(-1, 2, model.cfg.head_dim // 2, w.shape[1])
            projection.weight.data = halves.transpose(1, 2).reshape(w.shape).contiguous()
    return wrong(tokens).logits


def swap_kv_heads(model: Transformer, tokens: Tensor) -> Tensor:
    """Query head h reading KV head h % K instead of h // G."""
    wrong = copy.deepcopy(model)
    g = model.cfg.attention.group_size
    for layer in wrong.model.layers:
        w = layer.self_attn.q_proj.weight.data
        by_head = w.view(g, -1, model.cfg.head_dim, w.shape[1])
        layer.self_attn.q_proj.weight.data = by_head.transpose(0, 1).reshape(w.shape).contiguous()
    return wrong(tokens).logits


def wrong_base(model: Transformer, tokens: Tensor) -> Tensor:
    return model(tokens, edits=Edits(rope=Rope(rotary_dim=model.cfg.head_dim, base=500_000.0))).logits


@pytest.mark.parametrize("mistake", [forget_rotation, interleave, swap_kv_heads, wrong_base])
def test_negative_control(mistake: Callable[[Transformer, Tensor], Tensor]) -> None:
    """Each mistake moves the logits far beyond the tolerance, so the parity tests would see it."""
    theirs = hf_llama("gqa")
    tokens = tiny_tokens()
    logits, _, _ = reference(theirs, tokens)
    assert worst(mistake(ours(theirs), tokens), logits) > 100 * tolerance(theirs, logits, tokens)


def test_negative_control_of_the_cache() -> None:
    """A position offset forgotten in the steps gives other logits than one forward."""
    mine = ours(hf_llama("gqa"))
    tokens = tiny_tokens()
    cache = KVCache.empty(mine.cfg, 12)
    mine(tokens[:, :8], cache=cache)
    wrong = mine(tokens[:, 8:], cache=cache, positions=torch.arange(4)).logits
    assert worst(wrong, mine(tokens).logits[:, 8:]) > 0.1


PROMPT = "When Mary and John went to the café ☕, John gave a warm croissant to"


@pytest.fixture(scope="module")
def smollm2(smollm2_source: str) -> tuple[PreTrainedModel, Transformer, Tensor]:
    """The real model: ours loaded from the package, and transformers' given the same tensors."""
    from transformers import LlamaConfig, LlamaForCausalLM

    loaded = load_pretrained(smollm2_source, dtype="float32", device="cpu")
    cfg, tokenizer = loaded.model.cfg, loaded.tokenizer
    assert tokenizer is not None
    assert cfg.rope is not None
    config = LlamaConfig(
        vocab_size=cfg.vocab_size,
        hidden_size=cfg.d_model,
        num_hidden_layers=cfg.n_layers,
        num_attention_heads=cfg.n_heads,
        num_key_value_heads=cfg.n_kv_heads,
        intermediate_size=cfg.d_ff,
        max_position_embeddings=cfg.max_positions,
        rms_norm_eps=cfg.norm.eps,
        rope_parameters={"rope_type": "default", "rope_theta": cfg.rope.base},
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        theirs = LlamaForCausalLM._from_config(config, attn_implementation="eager", dtype=torch.float32)
    theirs.to_empty(device="cpu")
    state = loaded.model.state_dict()
    theirs.load_state_dict(state | {"lm_head.weight": state["model.embed_tokens.weight"]})
    theirs.model.rotary_emb = type(theirs.model.rotary_emb)(config)
    return theirs.eval(), loaded.model, torch.tensor([tokenizer.encode(PROMPT)])


def test_smollm2_is_the_model_we_say(smollm2: tuple[PreTrainedModel, Transformer, Tensor]) -> None:
    _, mine, _ = smollm2
    assert sum(p.numel() for p in mine.parameters()) == 134_515_008
    assert (mine.cfg.n_layers, mine.cfg.n_heads, mine.cfg.n_kv_heads, mine.cfg.head_dim) == (30, 9, 3, 64)


def test_smollm2_equals_transformers(smollm2: tuple[PreTrainedModel, Transformer, Tensor]) -> None:
    theirs, mine, tokens = smollm2
    logits, residuals, weights = reference(theirs, tokens)
    out = mine(tokens, capture=TRACED)
    assert out.trace is not None
    allowed = tolerance(theirs, logits, tokens)
    assert worst(out.logits, logits) <= allowed
    assert worst(forget_rotation(mine, tokens), logits) > 100 * allowed
    for layer, stages in out.trace.layers.items():
        assert worst(stages["pattern"], weights[layer]) <= 1e-4
        assert worst(stages["resid_pre"], residuals[layer]) <= 1e-5 * residuals[layer].abs().max()
    assert worst(out.trace.layers[3]["pattern"], weights[4]) > 0.1


def test_smollm2_decodes_as_transformers(smollm2: tuple[PreTrainedModel, Transformer, Tensor]) -> None:
    theirs, mine, tokens = smollm2
    decoder = Decoder(mine, tokens[0].tolist(), Sampler(temperature=0))
    for _ in range(32):
        decoder.step()
    assert list(decoder.tokens) == greedy(theirs, tokens, 32)
    cached = torch.tensor(decoder.steps[-1].logits)
    whole = mine(torch.tensor([decoder.tokens[:-1]]), logits_to_keep=1).logits[0, 0]
    assert worst(cached, whole) <= tolerance(theirs, mine(tokens).logits, tokens)
