"""How long all shipped configs take: read, and every calculator at one context (`python -m benchmarks.costs`).

Bound: 50 ms together for the calculators, configs read and nothing kept from before. Below it what one run of the Cost
page makes for its sliders: five figures of DeepSeek-V3 at all their stops, then after a slider has moved.
"""

from __future__ import annotations

import statistics
import sys
import time
from functools import partial

from figures.cost import Setting, costs_payload, table_payload
from figures.cost_stops import BATCH, followed, followed_on
from figures.roofline import machine_roofline, machines_payload, sweep_payload
from lmcore import costs, flops, presets
from lmcore.config import ModelConfig
from lmcore.hardware import Accelerator, accelerator
from lmcore.kv_costs import kv_cache_bytes
from lmcore.roofline import decode_point, prefill_point
from lmcore.traffic import activation_bytes, training_state_bytes

CONTEXT, TIMES = 32_768, 9
SLIDERS = (Setting(context=4096, batch=1), Setting(context=8192, batch=1), Setting(context=8192, batch=2))


def evaluate(cfg: ModelConfig) -> None:
    """What the Cost page shows of a config."""
    costs.param_counts(cfg)
    costs.active_counts(cfg)
    costs.weight_bytes(cfg, 2)
    kv_cache_bytes(cfg, context=CONTEXT)
    flops.training_flops(cfg, tokens=CONTEXT)
    flops.prefill_flops(cfg, tokens=CONTEXT)
    flops.decode_flops(cfg, position=CONTEXT)
    prefill_point(cfg, tokens=CONTEXT)
    decode_point(cfg, position=CONTEXT)
    activation_bytes(cfg, tokens=CONTEXT)
    training_state_bytes(cfg)


def forget() -> None:
    """Drop whatever any calculator or figure has kept."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("lmcore", "figures")]:
        for kept in list(vars(sys.modules[name]).values()):
            if hasattr(kept, "cache_clear") and kept is not presets.shipped:
                kept.cache_clear()


def stops(cfg: ModelConfig, setting: Setting) -> int:
    """Bytes of what the Cost page sends for one place of its sliders."""
    machine = accelerator("H100 SXM")
    made = [
        followed(lambda at: costs_payload(cfg, at, to_copy=at == setting), setting),
        followed(partial(table_payload, cfg), setting),
        followed_on(lambda at, ranks: machine_roofline(cfg, at, machine, ranks), setting, 1),
        followed_on(lambda at, ranks: sweep_payload(cfg, at, machine, ranks, "batch"), setting, 1, apart=[BATCH]),
        followed_on(partial(_machines, cfg, setting, machine), setting, 1),
    ]
    return sum(map(len, made))


def _machines(cfg: ModelConfig, now: Setting, machine: Accelerator, at: Setting, ranks: int) -> bytes:
    return machines_payload(cfg, at, machine, ranks, to_copy=(at, ranks) == (now, 1))


def main() -> None:
    begun = time.perf_counter()
    configs = [presets.shipped(preset.name).config for preset in presets.PRESETS]
    print(f"{len(configs)} configs read in {(time.perf_counter() - begun) * 1e3:.1f} ms")
    for what, afresh in (("nothing kept", True), ("again", False)):
        times = []
        for _ in range(TIMES):
            if afresh:
                forget()
            begun = time.perf_counter()
            for cfg in configs:
                evaluate(cfg)
            times.append((time.perf_counter() - begun) * 1e3)
        print(f"all of them, {what}: median {statistics.median(times):.1f} ms, least {min(times):.1f} ms")
    large = presets.shipped("deepseek-v3").config
    forget()
    for what, setting in zip(("nothing kept", "the context moved", "the batch moved"), SLIDERS, strict=True):
        begun = time.process_time()
        size = stops(large, setting)
        spent = (time.process_time() - begun) * 1e3
        print(f"at every stop, {what}: {spent:.0f} ms of processor time, {size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
