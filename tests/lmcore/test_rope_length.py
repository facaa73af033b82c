"""Models with scaled RoPE: whole, and stepping with a cache where the frequencies follow the length."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch

from lmcore.cache import KVCache
from lmcore.checkpoint import load_pretrained
from lmcore.decode import Decoder
from lmcore.sampling import Sampler
from tests.lmcore.test_parity import tolerance
from tests.lmcore.tiny import hf_llama, ours, tiny_tokens

FOLLOWING = {
    "dynamic": {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 4.0},
    "longrope": {
        "rope_type": "longrope",
        "rope_theta": 100.0,
        "factor": 4.0,
        "original_max_position_embeddings": 16,
        "short_factor": [1.0 + 0.1 * i for i in range(6)],
        "long_factor": [1.0 + 2.0 * i for i in range(6)],
    },
}


@pytest.fixture(params=FOLLOWING)
def following(request: pytest.FixtureRequest):
    return hf_llama("gqa", max_position_embeddings=16, rope_parameters=FOLLOWING[request.param])


@pytest.mark.parametrize("chunks", [[1] * 24, [10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 5], [20, 1, 1, 1, 1]])
def test_a_cached_step_equals_a_full_forward(following, chunks: list[int]) -> None:
    """At the newest position, on both sides of the switch at 16: in every layer, not in the first alone."""
    mine = ours(following)
    tokens = tiny_tokens(24)
    cache = KVCache.empty(mine.cfg, 24)
    # A copy: the reference remembers the longest text it saw, and uses its frequencies for shorter ones.
    other = copy.deepcopy(following)
    length, limit = 0, tolerance(other, other(tokens).logits.detach(), tokens)
    for part in tokens.split(chunks, dim=1):
        length += part.shape[1]
        step = mine(part, cache=cache).logits[:, -1]
        with torch.inference_mode():
            assert (step - following(tokens[:, :length]).logits[:, -1]).abs().max() <= limit
        assert (step - mine(tokens[:, :length]).logits[:, -1]).abs().max() <= limit


def test_greedy_decoding_and_rewinding_across_the_switch(following) -> None:
    """Against the reference without its cache, which keeps keys of the old frequencies."""
    mine = ours(following)
    prompt = tiny_tokens(12)
    assert following.generation_config is not None
    following.generation_config.eos_token_id = None
    expected = following.generate(prompt, max_new_tokens=10, do_sample=False, use_cache=False)[0].tolist()
    decoder = Decoder(mine, prompt[0].tolist(), Sampler(temperature=0))
    for _ in range(10):
        decoder.step()
    assert list(decoder.tokens) == expected
    decoder.rewind(2)  # back under the switch, where the first frequencies count again
    for _ in range(8):
        decoder.step()
    assert list(decoder.tokens) == expected


def test_keys_left_as_they_were_would_show(following) -> None:
    """Negative control: a step on a cache that is not told what it holds keeps the old frequencies."""
    mine = ours(following)
    tokens = tiny_tokens(24)
    cache = KVCache.empty(mine.cfg, 24)
    mine(tokens[:, :16], cache=cache)
    cache.turned = None
    step = mine(tokens[:, 16:], cache=cache).logits[:, -1]
    assert (step - mine(tokens).logits[:, -1]).abs().max() > 0.01


def test_a_fork_goes_its_own_way(following) -> None:
    mine = ours(following)
    tokens = tiny_tokens(24)
    cache = KVCache.empty(mine.cfg, 24)
    mine(tokens[:, :15], cache=cache)
    fork = cache.fork()
    mine(tokens[:, 15:20], cache=fork)
    step = mine(tokens[:, 15:16], cache=cache).logits[:, -1]
    assert (step - mine(tokens[:, :16]).logits[:, -1]).abs().max() <= 1e-4


# Whole models with each scaling

SCALED = {
    "linear": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 32},
    "yarn mscale": {"factor": 4.0, "original_max_position_embeddings": 32, "mscale": 0.5, "mscale_all_dim": 1.0},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "proportional": {"partial_rotary_factor": 0.5},
}


@pytest.mark.parametrize("name", SCALED)
def test_models_with_a_scaling(name: str, tmp_path: Path) -> None:
    parameters = {"rope_type": name.split()[0], "rope_theta": 100.0, **SCALED[name]}
    theirs = hf_llama("gqa", rope_parameters=parameters)
    theirs.save_pretrained(tmp_path)
    tokens = tiny_tokens(40)
    mine = load_pretrained(tmp_path, dtype="float32", device="cpu").model
    with torch.inference_mode():
        reference = theirs(tokens).logits
    assert (mine(tokens).logits - reference).abs().max() <= 1e-4
    raw = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(raw | {"rope_parameters": {"rope_theta": 100.0}}))
    unscaled = load_pretrained(tmp_path, dtype="float32", device="cpu").model
    assert (unscaled(tokens).logits - reference).abs().max() > 0.01
