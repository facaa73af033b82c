"""`transformers` on a folder and a prompt, in a process of its own: `python -m lmcore.reference REQUEST ANSWER`.

REQUEST is a JSON file (folder, tokens, noise), ANSWER the safetensors file to write: logits, the residual that enters
the first block and leaves each, attention weights where the family gives them. Lines on stdout say how far it is; the
last one of a failure begins with "failed: ". Nothing is fetched, no code of the folder runs, no pickle is opened.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def blocks_of(model: nn.Module, n_layers: int) -> nn.ModuleList:
    """The list of blocks: the outermost list of modules of the language model that is as long as it is deep."""
    language = next((m for name, m in model.named_modules() if name.endswith("language_model")), model)
    return next(m for m in language.modules() if isinstance(m, nn.ModuleList) and len(m) == n_layers)


@torch.inference_mode()
def observed(model: Any, tokens: list[int]) -> dict[str, Tensor]:
    """Logits (T, V), `resid_pre` (T, D), `resid_post.{layer}` (T, D) and `pattern.{layer}` (H, T, T)."""
    found: dict[str, Tensor] = {}

    def first(values: Any) -> Tensor:
        return (values[0] if isinstance(values, tuple) else values)[0]

    def entering(_: nn.Module, args: Any, kwargs: Any) -> None:
        found["resid_pre"] = first(args[0] if args else kwargs["hidden_states"]).clone()

    def leaving(layer: int) -> Any:
        def keep(_: nn.Module, __: Any, output: Any) -> None:
            found[f"resid_post.{layer}"] = first(output).clone()

        return keep

    blocks = blocks_of(model, model.config.get_text_config().num_hidden_layers)
    hooks = [blocks[0].register_forward_pre_hook(entering, with_kwargs=True)]
    hooks += [block.register_forward_hook(leaving(layer)) for layer, block in enumerate(blocks)]
    try:
        output = model(torch.tensor([tokens]), use_cache=False, output_attentions=True)
    finally:
        for hook in hooks:
            hook.remove()
    found["logits"] = output.logits[0]
    for layer, weights in enumerate(output.attentions or ()):
        if weights is not None and weights.shape[-2:] == (len(tokens), len(tokens)):
            found[f"pattern.{layer}"] = weights[0]
    return found


def main(request: Path, answer: Path) -> None:
    asked = json.loads(request.read_text(encoding="utf-8"))
    say("Starting transformers")
    import transformers
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    say("transformers reads the weights")
    config = AutoConfig.from_pretrained(asked["folder"], local_files_only=True, trust_remote_code=False)
    alone = type(config) in AutoModelForCausalLM._model_mapping
    model = (
        (AutoModelForCausalLM if alone else AutoModelForImageTextToText)
        .from_pretrained(
            asked["folder"],
            config=config,
            dtype=torch.float32,
            attn_implementation="eager",
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
        )
        .eval()
    )
    say("transformers runs the prompt")
    found = observed(model, asked["tokens"])
    if asked["noise"]:
        say("transformers runs the prompt in float64")
        exact = observed(model.double(), asked["tokens"])["logits"]
        found["noise"] = (exact - found["logits"]).abs().max().reshape(1)
    tensors = {name: tensor.float().contiguous() for name, tensor in found.items()}
    save_file(tensors, answer, metadata={"transformers": transformers.__version__})


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    except Exception as error:
        say(f"failed: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
        sys.exit(1)
