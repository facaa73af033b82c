"""This machine and a model by the clock: times are finite, and what they are times of is exact."""

from __future__ import annotations

import math

import pytest
import torch

from lmcore import machine
from lmcore.errors import Cancelled, InputError
from lmcore.families import config_from_hf
from lmcore.flops import decode_flops, prefill_flops
from lmcore.machine import best_time, measure_machine
from lmcore.model import Transformer
from lmcore.timed import cache_by_step, timed
from tests.lmcore.family_models import VARIANTS, build


def model(family: str, dtype: torch.dtype = torch.float32) -> Transformer:
    return Transformer(config_from_hf(build(VARIANTS[family]).config.to_dict())[0]).to(dtype)


def test_rates_of_this_machine() -> None:
    lines: list[str] = []
    found = measure_machine("cpu", torch.float32, progress=lines.append, budget_s=0.02)
    assert 1e7 < found.bytes_per_s < 1e14
    assert 1e7 < found.flops_per_s < 1e16
    assert found.roof.ridge == found.flops_per_s / found.bytes_per_s
    assert (found.device, found.dtype) == ("cpu", "float32")
    assert lines[0] == "reading and copying memory"
    assert lines[1] == "multiplying matrices of 256 × 256"


def test_a_small_product_that_was_interrupted_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds as on a busy machine: a tenth for a product of 256, which the processor was taken from."""
    taken = iter([0.1, 0.1, 0.1, 0.001, 0.002, 1.0])
    monkeypatch.setattr(machine, "best_time", lambda *given, **how: next(taken))
    found = measure_machine("cpu", torch.float32, budget_s=0.16)
    assert found.width == 1024
    assert found.flops_per_s == 2 * 1024**3 / 0.002


def test_progress_may_stop_it() -> None:
    def stop(line: str) -> None:
        raise Cancelled("enough")

    with pytest.raises(Cancelled):
        measure_machine("cpu", torch.float32, progress=stop, budget_s=0.02)


def test_the_fastest_run_counts() -> None:
    runs: list[int] = []
    assert best_time(lambda: runs.append(1), torch.device("cpu"), 0.0, least=3) < 60
    assert len(runs) == 4


@pytest.mark.parametrize("family", ["llama", "deepseek_v3"])
def test_times_belong_to_the_formulas_of_the_same_forwards(family: str) -> None:
    tiny = model(family)
    found, cfg = timed(tiny, range(3, 20), budget_s=0.0), tiny.cfg
    assert found.tokens == 17
    assert all(math.isfinite(seconds) and seconds > 0 for seconds in (found.prefill_s, found.decode_s))
    assert found.prefill.flops == sum(prefill_flops(cfg, tokens=17).values())
    assert found.decode.flops == sum(decode_flops(cfg, position=17).values())
    assert found.prefill.intensity > found.decode.intensity


@pytest.mark.parametrize(
    ("family", "dtype"),
    [("llama", torch.bfloat16), ("gemma3", torch.float32), ("deepseek_v3", torch.float32), ("gpt_oss", torch.float32)],
)
def test_the_cache_holds_what_the_formula_says_at_every_step(family: str, dtype: torch.dtype) -> None:
    found = cache_by_step(model(family, dtype), range(3, 24))
    assert [step.length for step in found] == list(range(10, 22))
    for step in found:
        assert (step.used, step.allocated) == (step.used_by_formula, step.allocated_by_formula)


def test_no_token_is_refused() -> None:
    with pytest.raises(InputError, match="no tokens"):
        timed(model("llama"), [])
