"""How long all shipped configs take: read, and every calculator at one context (`python -m benchmarks.costs`).

Bound: 50 ms together for the calculators, configs read and nothing kept from before.
"""

from __future__ import annotations

import statistics
import time

from lmcore import costs, flops, layer_kinds, presets
from lmcore.config import ModelConfig
from lmcore.kv_costs import kv_cache_bytes
from lmcore.roofline import decode_point, prefill_point
from lmcore.traffic import activation_bytes, training_state_bytes

CONTEXT, TIMES = 32_768, 9
KEPT = (layer_kinds.layer_kinds, layer_kinds.outer_rows, costs.param_counts, costs.active_counts, flops.work_per_token)


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


def main() -> None:
    begun = time.perf_counter()
    configs = [presets.shipped(preset.name).config for preset in presets.PRESETS]
    print(f"{len(configs)} configs read in {(time.perf_counter() - begun) * 1e3:.1f} ms")
    for what, forget in (("nothing kept", True), ("again", False)):
        times = []
        for _ in range(TIMES):
            for kept in KEPT if forget else ():
                kept.cache_clear()
            begun = time.perf_counter()
            for cfg in configs:
                evaluate(cfg)
            times.append((time.perf_counter() - begun) * 1e3)
        print(f"all of them, {what}: median {statistics.median(times):.1f} ms, least {min(times):.1f} ms")


if __name__ == "__main__":
    main()
