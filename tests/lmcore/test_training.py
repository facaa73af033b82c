"""Training of the family, on models and texts small enough to train here: seeded, resumable, written as a folder."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from lmcore import teaching, train
from lmcore.checkpoint import load_pretrained
from lmcore.errors import CheckpointError, InputError
from lmcore.families import config_from_hf
from lmcore.training.loop import IGNORED, Budget, Repeats, Run, Windows, first_weights, heldout_windows, mean_loss
from lmcore.training.ngram import KneserNey
from lmcore.training.record import baseline, record_of
from lmcore.training.text import SHA256, corpus, excerpt, read_text, split
from lmcore.training.write import write_folder
from tests.lmcore.teaching_models import raw

TEXT = "".join(
    f"SPEAKER {n % 7}:\nthe {n} quick brown foxes jump over {n * n} lazy dogs — café.\n\n" for n in range(400)
)
SMALL = Budget(steps=8, batch=3, context=16, warmup=2, every=4)
MODEL = teaching.Teaching("tiny", "Tiny", "for a test", width=32, layers=2, ffn=48)


def run_of(kind: str = "rope", budget: Budget = SMALL) -> Run:
    cfg, _ = config_from_hf(raw(kind))
    return Run(cfg, budget, Windows(np.arange(500) * 7 % cfg.vocab_size, budget))


def weights(run: Run) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in run.named.items()}


def equal(a: Run, b: Run) -> bool:
    return all(torch.equal(a.named[name], b.named[name]) for name in a.named)


@pytest.mark.parametrize("kind", ["rope", "t5", "attention only"])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(kind: str, tmp_path: Path) -> None:
    whole, first, other = (run_of(kind) for _ in range(3))
    losses = [whole.step() for _ in range(8)]
    assert [first.step() for _ in range(5)] == losses[:5]
    first.save(tmp_path / "run.safetensors")
    second = run_of(kind)
    second.resume(tmp_path / "run.safetensors")
    assert not equal(second, whole)
    assert [second.step() for _ in range(3)] == losses[5:]
    assert equal(second, whole)
    assert second.note(1.0) == whole.note(1.0)
    for _ in range(8):
        other.step()
    assert equal(other, whole)


def test_what_was_saved_of_another_budget_is_refused(tmp_path: Path) -> None:
    run = run_of()
    run.step()
    run.save(tmp_path / "run.safetensors")
    with pytest.raises(CheckpointError, match="another budget"):
        run_of(budget=replace(SMALL, seed=1)).resume(tmp_path / "run.safetensors")


def test_training_learns_and_another_seed_is_another_run() -> None:
    budget = replace(SMALL, steps=60, warmup=5)
    run, other = run_of(budget=budget), run_of(budget=replace(budget, seed=1))
    assert not equal(run, other)
    losses = [run.step() for _ in range(60)]
    assert np.mean(losses[-5:]) < 0.65 * losses[0]


def test_what_two_models_have_in_common_begins_alike() -> None:
    one, two = (dict(first_weights(config_from_hf(raw(kind))[0], 0, 0.08)) for kind in ("rope", "learned"))
    assert set(two) - set(one) == {"model.embed_positions.weight"}
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["model.layers.0.self_attn.q_proj.weight"], one["model.layers.1.self_attn.q_proj.weight"])


def test_the_learning_rate_rises_and_falls() -> None:
    budget = Budget(steps=100, warmup=10, peak=1.0, floor=0.1)
    rates = [budget.rate(step) for step in range(101)]
    assert rates[:10] == pytest.approx([(n + 1) / 10 for n in range(10)])
    assert rates[55] == pytest.approx(0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi / 2)))
    assert rates[100] == pytest.approx(0.1)
    assert np.all(np.diff(rates[10:]) < 0)


def test_repeats_ask_only_for_what_came_before() -> None:
    tokens, targets = Repeats(50, replace(SMALL, context=40), periods=(4, 9))(3)
    periods = set()
    for row, wanted in zip(tokens.tolist(), targets.tolist(), strict=True):
        period = next(p for p in range(4, 10) if row[p:] == row[:-p])
        assert wanted[: period - 1] == [IGNORED] * (period - 1)
        assert wanted[period - 1 :] == [*row[period:], row[len(row) % period]]
        periods.add(period)
    assert len(periods) > 1


def test_heldout_windows_cover_a_text_once() -> None:
    tokens, targets = heldout_windows(np.arange(45), 10)
    assert tokens.flatten().tolist() == list(range(40))
    assert targets.flatten().tolist() == list(range(1, 41))


def test_the_split_and_the_excerpt_are_the_end_of_the_text() -> None:
    first, rest = split(TEXT)
    assert first + rest == TEXT
    assert len(rest) == pytest.approx(0.1 * len(TEXT), abs=1)
    assert TEXT.endswith(excerpt(TEXT))
    assert excerpt(TEXT).startswith("SPEAKER")
    assert len(excerpt(TEXT)) <= 20_000


def test_tokens_are_bytes_exactly() -> None:
    data = corpus(TEXT, vocabulary=300)
    first, rest = split(TEXT)
    assert data.tokenizer.decode(data.train.tolist()) == first
    assert int(data.token_bytes[data.heldout].sum()) == len(rest.encode())
    assert data.tokenizer.get_vocab_size() == 300


def test_another_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    with pytest.raises(InputError, match="cannot be read"):
        read_text(file)
    file.write_text(TEXT)
    with pytest.raises(InputError, match=SHA256):
        read_text(file)
    assert train.main(["rope-gqa", "--text", str(file), "--out", str(tmp_path)]) == 1


def test_kneser_ney_is_a_distribution_and_hand_counted() -> None:
    """On "a b a b a c": d = 1/3 for pairs; p(b | a) = (2 - d) / 3 + d 2/3 p(b), with p(b) from one kind of context."""
    tokens = [0, 1, 0, 1, 0, 2]
    pairs = KneserNey(tokens, 2, 4)
    assert sum(pairs.probability([0], token) for token in range(4)) == pytest.approx(1)
    once, twice = 1, 2
    d = once / (once + 2 * twice)
    ends = {0: 1, 1: 1, 2: 1}  # each token has one kind of token before it
    d1 = 3 / (3 + 0)
    unigram = (ends[1] - d1) / 3 + d1 * 3 / 3 / 4
    assert pairs.probability([0], 1) == pytest.approx((2 - d) / 3 + d * 2 / 3 * unigram)
    assert pairs.probability([3], 1) == pytest.approx(unigram)  # an unseen context backs off


@pytest.mark.parametrize("order", [1, 3, 4])
def test_kneser_ney_of_any_order_sums_to_one(order: int) -> None:
    tokens = np.random.default_rng(0).zipf(1.5, 2000) % 20
    model = KneserNey(tokens.tolist(), order, 21)
    for context in ([], [1], [3, 1], [1, 2, 1], [20, 20, 20]):
        assert sum(model.probability(context, token) for token in range(21)) == pytest.approx(1)


def test_a_trained_model_is_an_ordinary_folder(tmp_path: Path) -> None:
    """Written, opened again, measured again: the record says what the file gives."""
    data, budget = corpus(TEXT), replace(SMALL, context=teaching.CONTEXT)
    cfg, _ = config_from_hf(MODEL.config)
    run = Run(cfg, budget, Windows(data.train, budget))
    for _ in range(3):
        run.step()
    run.note(5.0)
    record = record_of(MODEL, run, data, baseline(data, (2,)), threads=1)
    write_folder(run.model, MODEL, data.tokenizer, record, tmp_path)
    model, tokenizer, report = load_pretrained(tmp_path, dtype="float32", device="cpu")
    assert (report.assumptions, report.unused, report.stored_dtype) == ((), (), "float16")
    assert tokenizer is not None
    assert tokenizer.encode(TEXT[:300]) == data.tokenizer.encode(TEXT[:300]).ids
    again = mean_loss(model, *heldout_windows(data.heldout, teaching.CONTEXT))
    assert again == pytest.approx(record["heldout"]["nats_per_token"], abs=1e-4)
    assert json.loads((tmp_path / "record.json").read_text()) == json.loads(json.dumps(record))
    card = (tmp_path / "README.md").read_text()
    assert f"{record['parameters']:,} parameters" in card
    assert SHA256 not in card
    assert record["text"]["sha256"] in card


def test_the_induction_model_has_a_card_too(tmp_path: Path) -> None:
    data, budget = corpus(TEXT), replace(SMALL, context=teaching.CONTEXT)
    induction = teaching.by_name("induction")
    run = Run(config_from_hf(induction.config)[0], budget, Repeats(teaching.VOCABULARY, budget))
    run.step()
    run.note(7.0)
    write_folder(run.model, induction, data.tokenizer, record_of(induction, run, data, {}, 1), tmp_path)
    assert "Planted induction score" in (tmp_path / "README.md").read_text()
    assert load_pretrained(tmp_path, device="cpu").model.cfg.d_ff == 0


def test_dropout_thins_training_and_nothing_else() -> None:
    """A step's loss is another with it, that of held-out windows is not; a tenth is zeroed, the rest scaled up."""
    plain, thinned = run_of(budget=replace(SMALL, dropout=0)), run_of(budget=replace(SMALL, dropout=0.1))
    assert equal(plain, thinned)
    tokens, targets = plain.batches(0)
    assert mean_loss(plain.model, tokens, targets) == mean_loss(thinned.model, tokens, targets)
    seen: list[Tensor] = []
    down = thinned.model.get_submodule("model.layers.0.mlp.down_proj")
    assert isinstance(down, torch.nn.Linear)
    down.register_forward_hook(lambda module, given, out: seen.append(given[0]))
    hidden = torch.ones(1, 100, down.in_features)
    thinned.dropout.begin(0)
    down(hidden)
    assert 0.08 < float((seen[0] == 0).double().mean()) < 0.12
    assert torch.allclose(seen[0][seen[0] != 0], torch.tensor(256 / (256 - round(25.6))))
    thinned.dropout.begin(0)
    down(hidden)
    assert torch.equal(seen[0], seen[1])
    assert plain.step() != thinned.step()
