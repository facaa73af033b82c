"""What autograd holds between a forward with loss and its backward, counted on a model that runs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmcore.checkpoint.load import on_meta
from lmcore.errors import CapacityError, InputError
from lmcore.kept import COMPONENTS, kept_bytes
from lmcore.model import Transformer

IGNORED = -100


def measured_kept_bytes(
    model: Transformer, tokens: Sequence[int], *, batch: int = 1, max_bytes: int | None = None
) -> dict[str, int]:
    """Bytes of the tensors that one training forward of these tokens keeps, by the component that kept them first.

    The loss is the mean cross-entropy of every next token, in float32. Counted when it is known: the memory behind each
    tensor once, however many views of it are kept, without parameters and buffers. The model itself is not touched, nor
    are other threads that run it: a second one with the same tensors runs. Raises InputError without a token,
    CapacityError when `kept.kept_bytes` says that more than `max_bytes` would be held.
    """
    if not tokens:
        raise InputError("there are no tokens", expected="at least one", where="the prompt", todo="Type some text.")
    size = sum(kept_bytes(model.cfg, tokens=len(tokens), batch=batch, itemsize=model.dtype.itemsize).values())
    if max_bytes is not None and size > max_bytes:
        raise CapacityError(
            f"a training forward would keep {size:,} bytes",
            expected=f"at most {max_bytes:,}",
            where=f"the activations of {len(tokens):,} tokens",
            todo="Shorten the prompt.",
        )
    ids = torch.tensor([list(tokens)] * batch, dtype=torch.long, device=model.device)
    targets = F.pad(ids[:, 1:], (0, 1), value=IGNORED)
    with torch.inference_mode(False), torch.enable_grad():
        twin, ids, targets = _trainable(model), ids.clone(), targets.clone()
        with _components(twin) as where:
            held = _Held(twin, where)
            with torch.autograd.graph.saved_tensors_hooks(held.pack, lambda kept: kept.tensor):
                logits = twin(ids).logits
                loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
            del logits
            found = held.count()
            del loss
    return found


def _trainable(model: Transformer) -> Transformer:
    """A model with the same tensors, that records gradients."""
    twin = on_meta(model.cfg)
    tensors = {name: t.clone() if t.is_inference() else t.detach() for name, t in model.state_dict().items()}
    twin.load_state_dict(tensors, assign=True)
    return twin.requires_grad_(True).train()


@contextmanager
def _components(twin: Transformer) -> Iterator[Callable[[], str]]:
    """Which component is running, told by hooks on a model that nobody else runs."""
    stack = ["embedding"]

    def entered(name: str) -> Callable[[nn.Module, Any], None]:
        return lambda module, args: stack.append(name)

    def embedded(module: nn.Module, args: Any) -> None:
        stack[0] = "logits"

    def left(module: nn.Module, args: Any, out: Any) -> None:
        stack.pop()

    handles = [twin.model.layers[0].register_forward_pre_hook(embedded)]
    for name, module in twin.named_modules():
        last = name.rpartition(".")[2]
        part = {"self_attn": "attention", "mlp": "ffn"}.get(last, "")
        if "norm" in last:
            part = "norms"
        elif last.startswith("embed_"):
            part = "embedding"
        if part:
            handles += [module.register_forward_pre_hook(entered(part)), module.register_forward_hook(left)]
    try:
        yield lambda: stack[-1]
    finally:
        for handle in handles:
            handle.remove()


@dataclass(eq=False)
class _Kept:
    """One saved tensor: it lives as long as the node of the graph that needs it.

    It holds an alias without history: an output saved by its own node would otherwise keep that node alive for ever.
    """

    tensor: Tensor
    part: str


class _Held:
    """Every saved tensor that some node still holds."""

    def __init__(self, twin: Transformer, where: Callable[[], str]) -> None:
        stored = (*twin.parameters(), *twin.buffers())
        self._own = {tensor.untyped_storage().data_ptr() for tensor in stored}
        self._where = where
        self._kept: list[weakref.ref[_Kept]] = []

    def pack(self, tensor: Tensor) -> _Kept:
        kept = _Kept(tensor.detach(), self._where())
        self._kept.append(weakref.ref(kept))
        return kept

    def count(self) -> dict[str, int]:
        """Bytes of the distinct memories held now, each under the component that saved it first."""
        found: dict[str, int] = dict.fromkeys(COMPONENTS, 0)
        seen: set[int] = set()
        for reference in self._kept:
            kept = reference()
            if kept is None:
                continue
            storage = kept.tensor.untyped_storage()
            if storage.data_ptr() not in self._own | seen:
                seen.add(storage.data_ptr())
                found[kept.part] += storage.nbytes()
        return found
