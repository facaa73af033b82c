"""lmcore on an accelerator: the same numbers as on the CPU, and how fast. Random weights at SmolLM2-135M's shape.

Needs torch and numpy only, installs nothing and ends within minutes; exits with 1 when a number is off.

    python -m benchmarks.gpu_check [--device cuda]
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import time
import types
from collections.abc import Callable

import torch


def stand_in_for_jaxtyping() -> None:
    """Shapes in annotations are checked by the tests only; a machine without jaxtyping gets names that mean nothing."""
    if importlib.util.find_spec("jaxtyping") is not None:
        return
    module = types.ModuleType("jaxtyping")

    class Shape:
        def __class_getitem__(cls, item: object) -> type:
            return object

    for name in ("Bool", "Float", "Float64", "Int"):
        setattr(module, name, Shape)
    sys.modules["jaxtyping"] = module


stand_in_for_jaxtyping()

from lmcore.cache import KVCache  # noqa: E402
from lmcore.config import Dense, GroupedQuery, ModelConfig, Norm, Rope  # noqa: E402
from lmcore.costs import kv_cache_bytes, param_counts  # noqa: E402
from lmcore.model import Transformer  # noqa: E402
from lmcore.trace import Capture  # noqa: E402

SMOLLM2 = ModelConfig(
    vocab_size=49_152,
    d_model=576,
    n_layers=30,
    max_positions=8192,
    attention=GroupedQuery(n_heads=9, n_kv_heads=3, head_dim=64, scale=64**-0.5),
    ffn=Dense(d_ff=1536),
    norm=Norm(eps=1e-5),
    rope=Rope(rotary_dim=64, base=100_000.0),
    tied=True,
    layer_types=("full",) * 30,
)


def random_model() -> Transformer:
    """Seeded weights scaled so that attention isn't flat and the residual stays finite through 30 layers."""
    torch.manual_seed(0)
    model = Transformer(SMOLLM2)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.data.normal_(0, 1.5 * parameter.shape[1] ** -0.5)
    return model


def wait(device: str) -> None:
    if device != "cpu":
        getattr(torch, device).synchronize()


def median_s(run: Callable[[], object], device: str, rounds: int) -> float:
    """Median seconds of a call, the device waited for, after two unmeasured ones."""
    times = []
    for turn in range(rounds + 2):
        wait(device)
        start = time.perf_counter()
        run()
        wait(device)
        if turn >= 2:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


class Check:
    """Comparisons, printed as they are made; `failed` when one is over its bound."""

    def __init__(self) -> None:
        self.failed = False

    def at_most(self, what: str, value: float, bound: float) -> None:
        good = value <= bound
        self.failed |= not good
        print(f"{what:58} {value:10.3g}  at most {bound:8.3g}  {'' if good else 'OFF'}")


def numbers(reference: Transformer, model: Transformer, device: str, check: Check) -> None:
    """Logits against the CPU in float64, traced = fused, cached = uncached, cache bytes = formula, and a control."""
    tokens = torch.randint(0, SMOLLM2.vocab_size, (1, 64), generator=torch.Generator().manual_seed(1))
    here = tokens.to(device)
    exact = reference.double()(tokens).logits
    noise = (reference.float()(tokens).logits.double() - exact).abs().max().item()
    allowed = max(1e-4, 10 * noise)
    logits = model(here).logits

    def off(other: torch.Tensor) -> float:
        return (other.double().cpu() - exact).abs().max().item()

    check.at_most("float32 logits against float64 on the CPU", off(logits), allowed)
    check.at_most("the same, attention written out", off(model(here, capture=Capture.of("pattern")).logits), allowed)
    cache = KVCache.empty(SMOLLM2, 64, device=device)
    parts = [model(part, cache=cache).logits for part in here.split([40, 20, 1, 1, 1, 1], dim=1)]
    check.at_most("the same, cached in chunks", off(torch.cat(parts, dim=1)), allowed)
    formula = sum(kv_cache_bytes(SMOLLM2, context=64, itemsize=4))
    check.at_most("cache bytes, difference from the formula", abs(cache.used_bytes - formula), 0)
    wrong = off(model(here, positions=torch.zeros(64, dtype=torch.long, device=device)).logits)
    check.at_most("control: allowed / (logits without positions)", allowed / wrong, 0.01)


def speed(model: Transformer, device: str) -> None:
    dtype = str(model.dtype).removeprefix("torch.")
    longest = 512 if device == "cpu" else 4096
    for length in (128, longest):
        tokens = torch.randint(0, SMOLLM2.vocab_size, (1, length), device=device)
        plain = median_s(lambda tokens=tokens: model(tokens, logits_to_keep=1), device, 5)
        print(f"prefill {length:5} tokens, {dtype:9} {1000 * plain:9.2f} ms  {length / plain:12,.0f} tokens/s")
    tokens = torch.randint(0, SMOLLM2.vocab_size, (1, 128), device=device)
    traced = median_s(lambda: model(tokens, capture=Capture.of("pattern", "resid_post")), device, 5)
    print(f"traced    128 tokens, {dtype:9} {1000 * traced:9.2f} ms")
    cache = KVCache.empty(SMOLLM2, 256, dtype=model.dtype, device=device)
    model(tokens, cache=cache)

    def step() -> None:
        model(tokens[:, :1], cache=cache, logits_to_keep=1)
        cache.truncate(128)

    one = median_s(step, device, 20)
    print(f"decode at 128 tokens, {dtype:9} {1000 * one:9.2f} ms  {1 / one:12,.1f} tokens/s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    device = parser.parse_args().device
    torch.set_grad_enabled(False)
    torch.set_float32_matmul_precision("highest")
    name = torch.cuda.get_device_name() if device == "cuda" else device
    if device == "cpu":
        print("no accelerator found: the same checks run on the CPU")
    print(f"torch {torch.__version__}, {name}; {param_counts(SMOLLM2).total:,} random parameters")
    check = Check()
    model = random_model()
    reference = random_model()
    numbers(reference, model.to(device), device, check)
    speed(model, device)
    speed(model.to(torch.bfloat16), device)
    return int(check.failed)


if __name__ == "__main__":
    sys.exit(main())
