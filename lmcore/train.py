"""Train the teaching family again: `python -m lmcore.train NAME|all --text FILE [--out FOLDER]`.

A run that was stopped goes on where it was; a finished one (its folder has a record of the same budget) is left alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import asdict, replace
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lmcore.effects import planted_scores
from lmcore.errors import LmcoreError
from lmcore.families import config_from_hf
from lmcore.model import Transformer
from lmcore.teaching import CONTEXT, FAMILY, HELDOUT, MODELS, Teaching, by_name
from lmcore.training.loop import Budget, Repeats, Run, Windows, heldout_windows, mean_loss
from lmcore.training.ngram import best_order
from lmcore.training.text import SHA256, Corpus, corpus, excerpt, read_text
from lmcore.training.write import write_folder

BUDGET = Budget(context=CONTEXT)
# Finding and copying is learned late and all at once, from batches that are cheap.
INDUCTION = Budget(context=CONTEXT, steps=1200, peak=2e-3, decay=0.01)
# Windows for the curve; the loss that is recorded is taken over all of the held-out text.
QUICK = 32
ORDERS = (2, 3, 4, 5)


def say(line: str, end: str = "\n") -> None:
    sys.stderr.write(line + end)
    sys.stderr.flush()


def train(teaching: Teaching, data: Corpus, budget: Budget, work: Path) -> Run:
    """The run of a model, finished: from its checkpoint in `work` if there is one."""
    cfg, _ = config_from_hf(teaching.config)
    batches = Windows(data.train, budget) if teaching.on_text else Repeats(cfg.vocab_size, budget)
    run = Run(cfg, budget, batches)
    file = work / f"{teaching.name}.safetensors"
    if file.is_file():
        run.resume(file)
        say(f"{teaching.name}: goes on at step {run.done}")
    heldout = _held(teaching, data, batches, QUICK)
    started, first = time.monotonic(), run.done
    while run.done < budget.steps:
        run.step()
        if run.done % budget.every == 0 or run.done == budget.steps:
            point = run.note(mean_loss(run.model, *heldout))
            run.save(file)
            left = (time.monotonic() - started) / (run.done - first) * (budget.steps - run.done)
            say(
                f"{teaching.name}: step {point.step:,} of {budget.steps:,}, training loss {point.train:.3f}, "
                f"held out {point.heldout:.3f}, {left / 60:.1f} min left"
            )
    return run


def _held(teaching: Teaching, data: Corpus, batches: Windows | Repeats, windows: int | None) -> Any:
    """Windows and targets that the model doesn't train on: of the held-out text, or later batches of repeats."""
    if teaching.on_text:
        tokens, targets = heldout_windows(data.heldout, CONTEXT)
        return tokens[:windows], targets[:windows]
    later = [batches(10**6 + n) for n in range(max(1, (windows or 8 * QUICK) // batches.budget.batch))]
    return torch.cat([tokens for tokens, _ in later]), torch.cat([targets for _, targets in later])


def rounded(model: Transformer) -> Transformer:
    """The model with the weights that its file will have, float16's, in float32."""
    for p in model.parameters():
        p.data = p.data.half().float()
    return model.requires_grad_(False).eval()


def record_of(teaching: Teaching, run: Run, data: Corpus, ngram: dict[str, Any], threads: int) -> dict[str, Any]:
    """record.json: how the model was trained and what came of it."""
    model = rounded(run.model)
    made: dict[str, Any] = {
        "name": teaching.name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "vocabulary": model.cfg.vocab_size,
        "budget": asdict(run.budget),
        "threads": threads,
        "torch": torch.__version__,
        "curve": [{"step": p.step, "train": round(p.train, 4), "heldout": round(p.heldout, 4)} for p in run.curve],
    }
    tokens, targets = _held(teaching, data, run.batches, None)
    loss = mean_loss(model, tokens, targets)
    if teaching.on_text:
        made["text"] = {"sha256": data.sha256, "train_tokens": len(data.train), "heldout_tokens": len(data.heldout)}
        made["heldout"] = _measured(loss, data, targets.numel())
        made["ngram"] = ngram
    else:
        assert isinstance(run.batches, Repeats)
        scores = planted_scores(model).induction
        layer, head = np.unravel_index(scores.argmax(), scores.shape)
        made["periods"] = list(run.batches.periods)
        made["repeats"] = {"nats_per_token": round(loss, 4), "chance": round(log(model.cfg.vocab_size), 4)}
        made["planted"] = {"induction": round(float(scores.max()), 4), "layer": int(layer), "head": int(head)}
    return made


def _measured(loss: float, data: Corpus, tokens: int) -> dict[str, Any]:
    """A loss over the first `tokens` predicted tokens of the held-out text, in nats per token and bits per byte."""
    size = int(data.token_bytes[data.heldout[1 : tokens + 1]].sum())
    bits = loss * tokens / size / log(2)
    return {"nats_per_token": round(loss, 4), "bits_per_byte": round(bits, 4), "tokens": tokens, "bytes": size}


def baseline(data: Corpus) -> dict[str, Any]:
    """The best n-gram model of the training tokens, on the tokens that the models are measured on."""
    count = (len(data.heldout) - 1) // CONTEXT * CONTEXT
    positions = range(1, count + 1)
    order, loss = best_order(data.train.tolist(), data.heldout.tolist(), positions, len(data.token_bytes), ORDERS)
    return {"order": order} | _measured(loss, data, count)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lmcore.train", description="Train Glassbox's teaching models.")
    parser.add_argument("name", help="a model's name, or all: " + ", ".join(model.name for model in FAMILY))
    parser.add_argument("--text", type=Path, required=True, help="the text, tinyshakespeare")
    parser.add_argument("--out", type=Path, default=MODELS, help="where the models' folders go")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "glassbox-train", help="checkpoints")
    parser.add_argument("--threads", type=int, default=1, help="what is bit-equal only for equal counts")
    parser.add_argument("--steps", type=int, help="fewer steps than the budget, for a trial")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    try:
        chosen = FAMILY if given.name == "all" else (by_name(given.name),)
        data = corpus(read_text(given.text, SHA256))
        if given.out == MODELS:
            HELDOUT.parent.mkdir(parents=True, exist_ok=True)
            HELDOUT.write_text(excerpt(read_text(given.text, SHA256)), encoding="utf-8")
        ngram = baseline(data)
        best = f"the {ngram['order']}-gram model has a held-out loss of {ngram['nats_per_token']:.3f} nats per token"
        say(f"{len(data.train):,} tokens to train on; {best}")
        given.work.mkdir(parents=True, exist_ok=True)
        for teaching in chosen:
            budget = BUDGET if teaching.on_text else INDUCTION
            run = train(teaching, data, budget if given.steps is None else _shorter(budget, given.steps), given.work)
            record = record_of(teaching, run, data, ngram, given.threads)
            write_folder(run.model, teaching, data.tokenizer, record, given.out / teaching.name)
            (given.work / f"{teaching.name}.safetensors").unlink()
            say(f"{teaching.name}: {record.get('heldout') or record.get('planted')}")
    except LmcoreError as error:
        say(str(error))
        return 1
    return 0


def _shorter(budget: Budget, steps: int) -> Budget:
    return replace(budget, steps=steps, warmup=min(budget.warmup, steps))


if __name__ == "__main__":
    sys.exit(main())
