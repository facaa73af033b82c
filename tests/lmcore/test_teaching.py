"""The teaching models as they are shipped: what their records claim, measured again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lmcore import teaching
from lmcore.checkpoint import load_pretrained
from lmcore.checkpoint.load import Loaded
from lmcore.effects import planted_scores
from lmcore.errors import CheckpointError, InputError
from lmcore.training.loop import heldout_windows, mean_loss

ROOT = Path(__file__).parent.parent.parent
TEXT = [model.name for model in teaching.FAMILY if model.on_text]
LLAMAS = [model.name for model in teaching.FAMILY if model.config["model_type"] == "llama"]
# nats per token; the one without positions is ahead of the best order by 0.048.
AHEAD, WEAKEST = 0.05, {"nope": 0.04}


@pytest.fixture(scope="module")
def opened() -> dict[str, Loaded]:
    return {m.name: load_pretrained(f"teaching:{m.name}", dtype="float32", device="cpu") for m in teaching.FAMILY}


def test_all_are_shipped_and_small(opened: dict[str, Loaded]) -> None:
    assert teaching.shipped() == teaching.FAMILY
    size = 0
    for model in teaching.FAMILY:
        size += sum(file.stat().st_size for file in model.folder.iterdir())
        count = sum(p.numel() for p in opened[model.name].model.parameters())
        assert count == opened[model.name].report.parameter_count == teaching.record(model.name)["parameters"]
        assert count <= 1_400_000
        assert json.loads((model.folder / "config.json").read_text()) == model.config
        assert opened[model.name].report.assumptions == opened[model.name].report.unused == ()
        assert opened[model.name].model.cfg.max_positions == teaching.CONTEXT
    assert size <= 30 * 10**6
    assert opened["draft"].report.parameter_count < 0.3 * opened["rope-gqa"].report.parameter_count


def test_they_share_tokenizer_and_budget() -> None:
    records = [teaching.record(name) for name in TEXT]
    assert len({json.dumps(record["budget"]) for record in records}) == 1
    assert len({json.dumps(record["ngram"]) for record in records}) == 1
    assert len({(model.folder / "tokenizer.json").read_bytes() for model in teaching.FAMILY}) == 1


def test_the_excerpt_comes_back_from_its_tokens(opened: dict[str, Loaded]) -> None:
    tokenizer, text = opened["rope-gqa"].tokenizer, teaching.heldout_text()
    assert tokenizer is not None
    assert b"".join(tokenizer.pieces(tokenizer.encode(text))).decode() == text
    odd = "naïve ☕ 日本 \x00\t<s>"
    assert b"".join(tokenizer.pieces(tokenizer.encode(odd))).decode() == odd


@pytest.mark.parametrize("name", TEXT)
def test_the_loss_is_the_recorded_one(opened: dict[str, Loaded], name: str) -> None:
    model, tokenizer, _ = opened[name]
    assert tokenizer is not None
    windows = heldout_windows(torch.tensor(tokenizer.encode(teaching.heldout_text())).numpy(), teaching.CONTEXT)
    loss = mean_loss(model, *windows)
    assert loss == pytest.approx(teaching.record(name)["heldout"]["excerpt"], abs=2e-3)


@pytest.mark.parametrize("name", TEXT)
def test_each_beats_an_ngram_model(name: str) -> None:
    """Every one beats the best order of all, on all of the held-out text and on the excerpt that is shipped."""
    record = teaching.record(name)
    mine, ngram = record["heldout"], record["ngram"]
    assert ngram["nats_per_token"] == min(ngram["orders"].values())
    assert mine["nats_per_token"] < ngram["nats_per_token"] - WEAKEST.get(name, AHEAD)
    assert mine["excerpt"] < ngram["excerpt"] - AHEAD
    assert mine["bits_per_byte"] == pytest.approx(
        mine["nats_per_token"] * mine["tokens"] / mine["bytes"] / 0.6931, rel=1e-3
    )


def test_the_loss_curve_falls() -> None:
    for name in TEXT:
        record = teaching.record(name)
        curve = record["curve"]
        assert [point["step"] for point in curve] == list(range(50, record["budget"]["steps"] + 1, 50))
        assert curve[-1]["heldout"] < curve[2]["heldout"] < curve[0]["heldout"]


def test_the_induction_model_finds_and_copies(opened: dict[str, Loaded]) -> None:
    scores = planted_scores(opened["induction"].model, seed=7)
    planted = teaching.record("induction")["planted"]
    assert scores.induction.max() > 0.8
    assert planted["induction"] > 0.8
    assert planted["layer"] == 1
    assert scores.induction[1, planted["head"]] > 0.7
    assert scores.induction[0].max() < 0.1
    assert scores.previous[0].max() > 0.3 > 0.1 > scores.previous[1].max()
    assert planted_scores(opened["rope-gqa"].model, seed=7).induction.max() < 0.5


@pytest.mark.parametrize("name", LLAMAS)
def test_transformers_opens_those_of_llamas_shape(opened: dict[str, Loaded], name: str) -> None:
    folder = teaching.by_name(name).folder
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
    text = "ROMEO:\nBut soft, what light through yonder window breaks?"
    ids = AutoTokenizer.from_pretrained(folder, local_files_only=True)(text)["input_ids"]
    model, tokenizer, _ = opened[name]
    assert tokenizer is not None
    assert ids == tokenizer.encode(text)
    with torch.inference_mode():
        difference = model(torch.tensor([ids])).logits - theirs(torch.tensor([ids])).logits
    assert difference.abs().max() < 1e-4


def test_beyond_the_trained_length_only_learned_positions_stop(opened: dict[str, Loaded]) -> None:
    """And what the extrapolation page shows: RoPE's loss rises there, ALiBi's does not."""
    tokenizer = opened["rope-gqa"].tokenizer
    assert tokenizer is not None
    ids = torch.tensor(tokenizer.encode(teaching.heldout_text()))
    rows = ids[: 8 * 401].view(8, 401)
    for name, (model, _, _) in opened.items():
        if name == "learned":
            with pytest.raises(InputError, match=r"position 399 .* of 128"):
                model(rows[:1, :-1])
        else:
            assert model(rows[:1, :-1]).logits.isfinite().all()
    rise = {}
    for name in ("rope-gqa", "alibi"):
        logits = opened[name].model(rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="none")
        loss = loss.view(8, 400).mean(0)
        rise[name] = float(loss[200:].mean() - loss[32:128].mean())
    assert rise["rope-gqa"] > 0.5
    assert rise["alibi"] < 0.2


def test_a_name_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(CheckpointError, match=r"rope-gqa.*induction"):
        load_pretrained("teaching:../../etc")


def test_a_model_that_is_not_there_says_how_to_make_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(teaching, "MODELS", tmp_path)
    with pytest.raises(CheckpointError, match=r"python -m lmcore\.train t5"):
        load_pretrained("teaching:t5")
    assert teaching.shipped() == ()


def test_the_family_is_listed_without_torch() -> None:
    code = "import sys, lmcore.teaching as t; t.record('rope-gqa'), t.heldout_text(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_the_readme_has_the_recorded_losses() -> None:
    rows = (ROOT / "README.md").read_text().splitlines()
    for name in TEXT:
        heldout = teaching.record(name)["heldout"]
        row = next(row for row in rows if row.startswith(f"| `{name}` |"))
        assert row.endswith(f"| {heldout['nats_per_token']:.2f} ({heldout['bits_per_byte']:.2f}) |")
