"""Train the teaching family again: `python -m lmcore.train NAME|all --text FILE [--out FOLDER]`.

A run that was stopped goes on where it was when the same command is given again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from lmcore.errors import LmcoreError
from lmcore.families import config_from_hf
from lmcore.teaching import CONTEXT, FAMILY, HELDOUT, MODELS, Teaching, by_name
from lmcore.training.loop import Budget, Repeats, Run, Windows, mean_loss
from lmcore.training.record import baseline, record_of, unseen
from lmcore.training.text import Corpus, corpus, excerpt, read_text
from lmcore.training.write import write_folder

BUDGET = Budget(context=CONTEXT)
# Finding and copying is learned all at once, from batches that are cheap.
INDUCTION = Budget(
    context=CONTEXT, steps=2400, batch=16, std=0.02, dropout=0, peak=2e-3, warmup=100, decay=0.01, betas=(0.9, 0.95)
)
# Windows for the curve; the loss that is recorded is taken over all of the held-out text.
QUICK = 32


def say(line: str) -> None:
    sys.stderr.write(line + "\n")
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
    tokens, targets = (part[:QUICK] for part in unseen(batches, data))
    started, first = time.monotonic(), run.done
    while run.done < budget.steps:
        run.step()
        if run.done % budget.every == 0 or run.done == budget.steps:
            point = run.note(mean_loss(run.model, tokens, targets))
            run.save(file)
            left = (time.monotonic() - started) / (run.done - first) * (budget.steps - run.done)
            say(
                f"{teaching.name}: step {point.step:,} of {budget.steps:,}, training loss {point.train:.3f}, "
                f"held out {point.heldout:.3f}, {left / 60:.1f} min left"
            )
    return run


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lmcore.train", description="Train Glassbox's teaching models.")
    parser.add_argument("name", help="a model's name, or all: " + ", ".join(model.name for model in FAMILY))
    parser.add_argument("--text", type=Path, required=True, help="the text, tinyshakespeare")
    parser.add_argument("--out", type=Path, default=MODELS, help="where the models' folders go")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "glassbox-train", help="checkpoints")
    parser.add_argument("--threads", type=int, default=1, help="two runs are equal bit for bit with equal counts only")
    parser.add_argument("--steps", type=int, help="fewer steps than the budget, for a trial")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    try:
        chosen = FAMILY if given.name == "all" else (by_name(given.name),)
        text = read_text(given.text)
        data = corpus(text)
        if given.out == MODELS:
            HELDOUT.parent.mkdir(parents=True, exist_ok=True)
            HELDOUT.write_text(excerpt(text), encoding="utf-8")
        ngram = baseline(data)
        best = f"the {ngram['order']}-gram model has a held-out loss of {ngram['nats_per_token']:.3f} nats per token"
        say(f"{len(data.train):,} tokens to train on; {best}")
        given.work.mkdir(parents=True, exist_ok=True)
        for teaching in chosen:
            budget = BUDGET if teaching.on_text else INDUCTION
            if given.steps is not None:
                budget = replace(budget, steps=given.steps, warmup=min(budget.warmup, given.steps))
            run = train(teaching, data, budget, given.work)
            record = record_of(teaching, run, data, ngram, given.threads)
            write_folder(run.model, teaching, data.tokenizer, record, given.out / teaching.name)
            (given.work / f"{teaching.name}.safetensors").unlink()
            say(f"{teaching.name}: {record.get('heldout') or record.get('planted')}")
    except LmcoreError as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
