"""The proof for the user's own model: `transformers` beside lmcore on the same weights and the same tokens.

The reference runs in a process of its own, in eager float32: the app stays responsive, its memory is given back, and
cancelling ends it. What is compared is the model as it runs, in its own dtype and on its own device.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import torch
from safetensors import safe_open
from torch import Tensor

from lmcore.config import ModelConfig
from lmcore.costs import weight_bytes
from lmcore.device import available_bytes
from lmcore.errors import CapacityError, CheckpointError, InputError
from lmcore.model import Transformer
from lmcore.trace import Capture

ROOT = Path(__file__).parent.parent
MAX_TOKENS = 128
TRACE_BYTES = 256 * 2**20
POLL_S = 0.2
# The largest difference, relative to the largest number of a layer, that the number format explains.
TOLERANCE = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}

Progress = Callable[[str], object]


@dataclass(frozen=True)
class LayerDifference:
    """One block: its residual's largest difference, relative to the layer's largest number, and of its weights."""

    layer: int
    residual: float
    pattern: float | None


@dataclass(frozen=True)
class Proof:
    """The largest differences between lmcore and transformers on `tokens` tokens of one model.

    `logits` is absolute, beside the reference's `largest_logit`; `embedding` is relative like the layers. `noise`, if
    it was asked for, is how far the reference's float32 logits lie from its own in float64.
    """

    tokens: int
    dtype: str
    logits: float
    largest_logit: float
    same_choices: int
    embedding: float
    layers: tuple[LayerDifference, ...]
    noise: float | None
    transformers: str
    torch: str
    measured_at: float
    seconds: float

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self.dtype]

    def is_bad(self, layer: LayerDifference) -> bool:
        """Beyond what the number format explains; a NaN is."""
        worst = max(layer.residual, layer.pattern or 0.0)
        return not (worst <= self.tolerance and layer.residual == layer.residual)

    @property
    def first_bad(self) -> int | None:
        """The first block that differs: those after it read its output."""
        return next((layer.layer for layer in self.layers if self.is_bad(layer)), None)

    @property
    def equal(self) -> bool:
        """Every block, the embedding and the logits within what the number format explains."""
        logits = self.logits <= self.tolerance * max(1.0, self.largest_logit)
        return self.first_bad is None and logits and self.embedding <= self.tolerance


def compare_with_transformers(
    model: Transformer,
    folder: Path,
    tokens: Sequence[int],
    *,
    noise: bool = False,
    progress: Progress | None = None,
) -> Proof:
    """Both on the same tokens, at most `MAX_TOKENS` of them, layer by layer.

    `folder` holds the weights as Hugging Face writes them (`lmcore.checkpoint.export.weights_folder`).
    `progress(line)` is called several times a second; what it raises ends the reference and passes through. Raises
    CapacityError for a model whose second copy does not fit, CheckpointError for one that transformers does not run,
    InputError for no tokens.
    """
    started = time.perf_counter()
    ids = comparable(model.cfg, tokens)
    _refuse_over_memory(model.cfg, noise)
    progress = progress or (lambda line: None)
    with tempfile.TemporaryDirectory(prefix="glassbox-proof-") as work:
        answer = Path(work) / "answer.safetensors"
        _run_reference(folder, ids, noise, answer, progress)
        progress("lmcore runs the prompt")
        given = torch.tensor([ids], device=model.device)
        output = model(given, capture=Capture.of("pattern", "resid_pre", "resid_post"))
        assert output.trace is not None
        progress("Comparing")
        with safe_open(answer, "pt") as theirs:
            names = set(theirs.keys())
            logits, mine = theirs.get_tensor("logits"), output.logits[0].float().cpu()
            layers = tuple(
                LayerDifference(
                    layer,
                    _relative(stages["resid_post"], theirs.get_tensor(f"resid_post.{layer}")),
                    _largest(stages["pattern"], theirs.get_tensor(f"pattern.{layer}"))
                    if f"pattern.{layer}" in names
                    else None,
                )
                for layer, stages in output.trace.layers.items()
            )
            return Proof(
                tokens=len(ids),
                dtype=str(model.dtype).removeprefix("torch."),
                logits=_largest(mine[None], logits),
                largest_logit=logits.abs().max().item(),
                same_choices=int((mine.argmax(-1) == logits.argmax(-1)).sum()),
                embedding=_relative(output.trace.layers[0]["resid_pre"], theirs.get_tensor("resid_pre")),
                layers=layers,
                noise=theirs.get_tensor("noise").item() if noise else None,
                transformers=theirs.metadata()["transformers"],
                torch=torch.__version__.partition("+")[0],
                measured_at=time.time(),
                seconds=time.perf_counter() - started,
            )


def comparable(cfg: ModelConfig, tokens: Sequence[int]) -> list[int]:
    """The first tokens of a prompt whose attention weights, of all layers at once, stay within bounds."""
    if not tokens:
        raise InputError("there are no tokens", expected="at least one", where="the prompt", todo="Type some text.")
    fit = int((TRACE_BYTES / (4 * cfg.n_layers * cfg.n_heads)) ** 0.5)
    return list(tokens[: max(1, min(MAX_TOKENS, fit))])


def _largest(mine: Tensor, theirs: Tensor) -> float:
    return (mine[0].double().cpu() - theirs.double()).abs().max().item()


def _relative(mine: Tensor, theirs: Tensor) -> float:
    return _largest(mine, theirs) / max(theirs.abs().max().item(), 1e-30)


def _refuse_over_memory(cfg: ModelConfig, noise: bool) -> None:
    needed = weight_bytes(cfg, 4) * (3 if noise else 1) + 2 * TRACE_BYTES
    free = available_bytes("cpu")
    if needed > free:
        raise CapacityError(
            f"the comparison needs {needed:,} bytes for a second copy in float32 and {free:,} are free",
            expected="room for the model twice",
            where="the memory of this machine",
            todo="Close other programs, or compare a smaller model of the same family.",
        )


def _run_reference(folder: Path, tokens: list[int], noise: bool, answer: Path, progress: Progress) -> None:
    """transformers in a process of its own, killed when `progress` raises."""
    request = answer.with_name("request.json")
    request.write_text(json.dumps({"folder": str(folder), "tokens": tokens, "noise": noise}), encoding="utf-8")
    child = subprocess.Popen(
        [sys.executable, "-m", "lmcore.reference", str(request), str(answer)],
        cwd=ROOT,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(torch.get_num_threads())},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
    )
    lines: queue.Queue[str | None] = queue.Queue()

    def listen() -> None:
        assert child.stdout is not None
        for line in child.stdout:
            lines.put(line.strip())
        lines.put(None)

    Thread(target=listen, name="transformers", daemon=True).start()
    said: str | None = "Starting transformers"
    failure = ""
    try:
        while said is not None:
            progress(said)
            try:
                new = lines.get(timeout=POLL_S)
            except queue.Empty:
                continue
            failure = new.removeprefix("failed: ") if new is not None and new.startswith("failed: ") else failure
            said = new
        code = child.wait()
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
    if code != 0:
        raise CheckpointError(
            f"transformers does not run this model ({failure or f'its process ended with {code}'})",
            expected="a folder that it reads",
            where=str(folder),
            todo="There is nothing to compare with; lmcore's own checks still hold.",
        )
