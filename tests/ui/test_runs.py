from __future__ import annotations

import numpy as np
import pytest

from lmcore.errors import CapacityError, InputError
from tests.ui.test_models import open_builtin
from ui import runs, state
from ui.models import Opened


@pytest.fixture(scope="module")
def opened() -> Opened:
    return open_builtin()


def test_run_is_what_the_model_computes(opened: Opened):
    import torch

    ids = (5, 6, 7, 6)
    run = runs.run(opened, ids, "pattern", "resid_post")
    logits = opened.model.forward(torch.tensor([ids])).logits[0]
    cfg = opened.config
    np.testing.assert_allclose(run.logits, logits.numpy(), atol=1e-5)
    assert run["pattern"].shape == (cfg.n_layers, cfg.n_heads, 4, 4)
    assert run["resid_post"].shape == (cfg.n_layers, 4, cfg.d_model)
    assert run.embedding.shape == run.final_normed.shape == (4, cfg.d_model)
    np.testing.assert_allclose(run["pattern"].sum(-1), 1, atol=1e-5)


def test_chosen_layers_and_last_logits_only(opened: Opened):
    all_layers = runs.run(opened, (1, 2, 3), "pattern")
    some = runs.run(opened, (1, 2, 3), "pattern", layers=(2, 0), logits_to_keep=1)
    assert some.layers == (0, 2)
    np.testing.assert_allclose(some["pattern"], all_layers["pattern"][[0, 2]], atol=1e-6)
    np.testing.assert_allclose(some.logits, all_layers.logits[-1:], atol=1e-5)


def test_results_are_shared_and_cannot_be_written(opened: Opened):
    run = runs.run(opened, (1, 2), "pattern")
    assert runs.run(opened, [1, 2], "pattern") is run
    for array in (run.logits, run.embedding, run.final_normed, run["pattern"]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_all_that_the_result_depends_on_is_in_the_key(opened: Opened):
    one = runs.run(opened, (1, 2), "pattern")
    others = [
        runs.run(opened, (2, 1), "pattern"),
        runs.run(opened, (1, 2), "pattern", layers=(0,)),
        runs.run(opened, (1, 2), "z"),
        runs.run(opened, (1, 2), "pattern", logits_to_keep=1),
        runs.run(open_builtin("bfloat16"), (1, 2), "pattern"),
    ]
    assert all(other is not one for other in others)


def test_fifty_prompts_stay_within_the_budget(opened: Opened, monkeypatch: pytest.MonkeyPatch):
    from ui.lru import ByteLRU
    from ui.runs import Run

    budget = 4 * runs.run(opened, range(32), "pattern").bytes_held()
    kept: ByteLRU[Run] = ByteLRU(max_entries=runs.MAX_RUNS, max_bytes=budget, size=Run.bytes_held)
    monkeypatch.setattr(runs, "_RUNS", kept)
    for first in range(50):
        runs.run(opened, range(first, first + 32), "pattern")
        assert kept.used_bytes <= budget
    assert len(kept) == 4


def test_trace_larger_than_the_cache_is_refused_with_both_sizes(opened: Opened, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runs, "RUN_BYTES", 1000)
    with pytest.raises(CapacityError, match="1,000"):
        runs.run(opened, range(20), "pattern")


def test_empty_run_is_an_input_error(opened: Opened):
    with pytest.raises(InputError):
        runs.run(opened, ())


@pytest.mark.parametrize("text", ["a", "the " * 20, "<s> <b>x</b> $x$", "tab\tand\nnewline", "日本語 🙂"])
def test_prompt_in_tokens_decodes_to_the_prompt(opened: Opened, monkeypatch: pytest.MonkeyPatch, text: str):
    monkeypatch.setattr(state, "prompt", lambda: text)
    prompt = runs.prompt(opened)
    assert 0 < len(prompt.ids) == prompt.total
    assert opened.tokenizer is not None
    assert text in opened.tokenizer.decode(list(prompt.ids))


def test_empty_prompt_has_no_tokens(opened: Opened, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(state, "prompt", lambda: "")
    assert runs.prompt(opened).ids == ()


def test_long_prompt_is_cut_at_the_limit_and_its_length_told(opened: Opened, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(state, "prompt", lambda: "ab " * 1300)
    prompt = runs.prompt(opened)
    assert len(prompt.ids) == min(runs.MAX_PROMPT_TOKENS, opened.config.max_positions)
    assert prompt.total > len(prompt.ids)


def test_a_page_that_keeps_all_logits_runs_as_many_tokens_as_fit_and_says_so(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(state, "prompt", lambda: "ab " * 100)
    monkeypatch.setattr(runs, "LOGITS_BYTES", 4 * opened.config.vocab_size * 50)
    prompt = runs.prompt(opened, all_logits=True)
    assert len(prompt.ids) == 50
    assert f"Of {prompt.total} tokens the first 50 are run here" in runs.shortened(opened, prompt)
    whole = runs.prompt(opened)
    assert len(whole.ids) == whole.total
    assert runs.shortened(opened, whole) == ""


def test_one_layer_is_that_layer_and_its_stream_makes_the_next(opened: Opened):
    ids = (5, 6, 7, 6)
    whole = runs.run(opened, ids, "pattern", "resid_post")
    first, stream = runs.one_layer(opened, ids, 0, "pattern")
    np.testing.assert_allclose(first["pattern"], whole["pattern"][0], atol=1e-6)
    second, after = runs.one_layer(opened, ids, 1, "pattern", stream=stream)
    np.testing.assert_allclose(second["pattern"], whole["pattern"][1], atol=1e-6)
    np.testing.assert_allclose(after[0].numpy(), whole["resid_post"][1], atol=1e-5)
    with pytest.raises(ValueError, match="read-only"):
        first["pattern"][0] = 0


def test_token_ids_can_be_typed_where_there_is_no_tokenizer():
    assert runs._typed_ids("1, 15 27") == [1, 15, 27]
    with pytest.raises(InputError, match="token ids"):
        runs._typed_ids("1 two")
