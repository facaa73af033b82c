"""From the names in a file to the names of our parameters: rows of rules, one loop, and the report of what became what.

A tensor that no rule names and whose name is a parameter's goes there as it is, so LLaMA-shaped files need no rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lmcore.config import ModelConfig
from lmcore.errors import CheckpointError
from lmcore.shapes import param_shapes

Shape = tuple[int, ...]
Transform = Callable[[Tensor, ModelConfig], tuple[Tensor, ...]]
# A tensor of the file, what it becomes, and how.
Row = tuple[str, tuple[str, ...], Transform | None]


class Rule(NamedTuple):
    """A name in the file, `{n}` and `{m}` standing for numbers and `{p}` for weight or bias, and what it becomes.

    `{e}` in a target stands for every expert in turn: a stacked tensor becomes one parameter each.

    No targets: the tensor is known and not needed, `note` says why.
    """

    source: str
    targets: tuple[str, ...]
    transform: Transform | None = None
    note: str = ""


class Mapped(NamedTuple):
    """One row of the report: a tensor of the file, the parameters it became, and what was done to it on the way."""

    source: str
    targets: tuple[str, ...]
    transform: str


class Plan(NamedTuple):
    """What will become what, decided from names and shapes alone, before a tensor is read."""

    cfg: ModelConfig
    rows: tuple[Row, ...]
    ignored: tuple[str, ...]
    unused: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def mapped(self) -> tuple[Mapped, ...]:
        """The rows as the report shows them; a tensor that is known and not needed becomes nothing."""
        known = tuple(
            Mapped(source, targets, transform.__name__.replace("_", " ") if transform else "as it is")
            for source, targets, transform in self.rows
        )
        return known + tuple(Mapped(source, (), "not needed") for source in self.ignored)


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadReport:
    """What `load_pretrained` found, did and assumed. `bytes_read` counts the weights in the file, as stored there.

    `missing` lists parameters that the file has no tensor for and that another tensor stood in for (`assumptions` say
    which); a parameter with nothing to stand in for it is refused, never filled with random numbers.
    """

    source: str
    path: str
    architecture: str
    parameter_count: int
    tensor_count: int
    mapped: tuple[Mapped, ...]
    unused: tuple[str, ...]
    missing: tuple[str, ...]
    dtype: str
    stored_dtype: str
    quantisation: str | None
    assumptions: tuple[str, ...]
    bytes_read: int
    seconds: float


EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"

# Tensors that only packed formats have: with them the weights beside them are not what their names say.
PACKED = re.compile(r"\.(qweight|qzeros|g_idx|weight_scale(_inv)?|weight_packed|SCB|absmax|quant_map|quant_state\S*)$")

# The config fields behind a shape, by the end of the parameter's name.
_FIELDS = {
    "q_proj.weight": "num_attention_heads x head_dim, hidden_size",
    "k_proj.weight": "num_key_value_heads x head_dim, hidden_size",
    "v_proj.weight": "num_key_value_heads x head_dim, hidden_size",
    "o_proj.weight": "hidden_size, num_attention_heads x head_dim",
    "gate_proj.weight": "intermediate_size, hidden_size",
    "up_proj.weight": "intermediate_size, hidden_size",
    "down_proj.weight": "hidden_size, intermediate_size",
    "norm.weight": "hidden_size",
    "embed_tokens.weight": "vocab_size, hidden_size",
    "lm_head.weight": "vocab_size, hidden_size",
}


def _expand(
    name: str, rules: tuple[tuple[re.Pattern[str], Rule], ...], shapes: Mapping[str, Shape], cfg: ModelConfig
) -> Rule | None:
    """The rule that covers this name, with its placeholders filled in; None when nothing needs the tensor."""
    for pattern, rule in rules:
        if match := pattern.fullmatch(name):
            targets = []
            for target in rule.targets:
                experts = range(cfg.moe.n_experts if cfg.moe and "{e}" in target else 1)
                targets += [target.format(**match.groupdict(), e=expert) for expert in experts]
            return rule._replace(targets=tuple(targets))
    return Rule(name, (name,)) if name in shapes else None


def _pattern(source: str) -> re.Pattern[str]:
    escaped = re.escape(source).replace(r"\{p\}", r"(?P<p>weight|bias)")
    for number in "nm":
        escaped = escaped.replace(rf"\{{{number}\}}", rf"(?P<{number}>\d{{1,6}})")
    return re.compile(escaped)


class Renamed(NamedTuple):
    """Tensors of a file under the names of another format, and the shapes they have there."""

    rows: tuple[Row, ...]
    ignored: tuple[str, ...]
    shapes: dict[str, Shape]
    notes: tuple[str, ...]


def renamed(cfg: ModelConfig, found: Mapping[str, Shape], rules: tuple[Rule, ...], where: str) -> Renamed:
    """What each tensor of a file is called in another format; one that no rule names keeps its name.

    Raises CheckpointError for two tensors of one name and for a shape that a rule cannot take.
    """
    compiled = tuple((_pattern(rule.source), rule) for rule in rules)
    rows, shapes, ignored, notes = [], {}, [], set()
    for name, shape in found.items():
        rule = _expand(name, compiled, {name: shape}, cfg)
        assert rule is not None
        for target, after in zip(rule.targets, _shapes_after(name, shape, rule, cfg, where), strict=True):
            if target in shapes:
                raise CheckpointError(f"a second tensor, {name}, becomes {target}", expected="one", where=where)
            shapes[target] = after
        if rule.targets:
            rows.append((name, rule.targets, rule.transform))
        else:
            ignored.append(name)
            notes.add(rule.note)
    return Renamed(tuple(rows), tuple(ignored), shapes, tuple(sorted(notes)))


def plan(cfg: ModelConfig, found: Mapping[str, Shape], rules: tuple[Rule, ...], where: str) -> Plan:
    """What each tensor of a file becomes, given their names and shapes. Reads no tensor.

    A config that says "tied" gives way to a file that holds its own head (as transformers 5 does), and a head stands
    in for the embedding when only it is there. Raises CheckpointError for a missing parameter, a wrong shape, two
    tensors for one parameter, a bias that the config has no place for, and packed formats.
    """
    compiled = tuple((_pattern(rule.source), rule) for rule in rules)
    ours = param_shapes(cfg.changed(tied=False))
    expanded = {name: _expand(name, compiled, ours, cfg) for name in found}
    given = {target for rule in expanded.values() if rule for target in rule.targets}
    notes = sorted({rule.note for rule in expanded.values() if rule and rule.note})
    if cfg.tied and HEAD in given and EMBEDDING in given:
        cfg = cfg.changed(tied=False)
    elif cfg.tied and HEAD in given:
        expanded = {n: r._replace(targets=(EMBEDDING,)) if r and HEAD in r.targets else r for n, r in expanded.items()}
        notes.append(f"{EMBEDDING} is not in the file: the tied head, {HEAD}, is used for both")
    shapes = param_shapes(cfg)
    rows: list[Row] = []
    owner: dict[str, str] = {}
    unused, ignored = [], []
    for name, rule in expanded.items():
        if rule is None or any(target not in shapes for target in rule.targets):
            unused.append(name)
            continue
        for target, shape in zip(rule.targets, _shapes_after(name, found[name], rule, cfg, where), strict=True):
            if target in owner:
                raise CheckpointError(
                    f"tensors {owner[target]} and {name} both become {target}", expected="one", where=where
                )
            if shape != shapes[target]:
                raise _wrong_shape(name, shape, target, shapes[target], where)
            owner[target] = name
        if rule.targets:
            rows.append((name, rule.targets, rule.transform))
        else:
            ignored.append(name)
    missing = [name for name in shapes if name not in owner]
    _refuse_packed(unused, where)
    if missing:
        raise CheckpointError(
            f"{len(missing)} of {len(shapes)} parameters are missing: {_some(missing)}",
            expected="a tensor for each parameter of the config",
            where=where,
            todo=_why_missing(missing, unused),
        )
    _refuse_homeless_biases(unused, expanded, shapes, where)
    if unused:
        notes.append(f"{len(unused)} tensors of the file are used for nothing: {_some(unused)}")
    return Plan(cfg, tuple(rows), tuple(ignored), tuple(unused), tuple(notes))


def _shapes_after(name: str, shape: Shape, rule: Rule, cfg: ModelConfig, where: str) -> list[Shape]:
    """Shapes that a rule's transform yields, found by running it on tensors without data."""
    if rule.transform is None:
        return [shape] * len(rule.targets)
    target = rule.targets[0]
    try:
        shapes = [tuple(part.shape) for part in rule.transform(torch.empty(shape, device="meta"), cfg)]
        if len(shapes) == len(rule.targets):
            return shapes
        raise _wrong_shape(name, shape, target, param_shapes(cfg).get(target, ()), where)
    except RuntimeError as error:
        raise _wrong_shape(name, shape, target, param_shapes(cfg).get(target, ()), where) from error


def _wrong_shape(name: str, shape: Shape, target: str, wanted: Shape, where: str) -> CheckpointError:
    fields = next((text for end, text in _FIELDS.items() if target.endswith(end)), "")
    return CheckpointError(
        f"tensor {name} has shape {shape}",
        expected=f"{wanted}" + (f", which is ({fields}) of the config" if fields else ""),
        where=where,
        todo="The config and the weights do not belong together.",
    )


def _refuse_packed(unused: list[str], where: str) -> None:
    packed = [name for name in unused if PACKED.search(name)]
    if packed:
        raise CheckpointError(
            f"the weights are packed in a quantised format ({_some(packed, 2)})",
            expected="float32, bfloat16 or float16 weights",
            where=where,
            todo="Load the unquantised model, or a GGUF file of it.",
        )


def _refuse_homeless_biases(
    unused: list[str], expanded: Mapping[str, Rule | None], shapes: Mapping[str, Shape], where: str
) -> None:
    """A bias beside a weight that is used would change the computation: leaving it out would be silently wrong."""
    for name in unused:
        rule = expanded[name]
        target = rule.targets[0] if rule else name
        if target.endswith(".bias") and target.removesuffix("bias") + "weight" in shapes:
            raise CheckpointError(
                f"tensor {name} is a bias that the config has no place for",
                expected="no bias there, or attention_bias or mlp_bias in the config",
                where=where,
            )


def _why_missing(missing: list[str], unused: list[str]) -> str:
    if missing == [HEAD]:
        return (
            "The config says that the head is not tied (tie_word_embeddings), and the file has none: download it again."
        )
    if unused:
        return f"The file has {len(unused)} tensors that no parameter is named after: {_some(unused)}."
    return "Download it again, or correct the config."


def _some(names: list[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def apply(row: Row, tensor: Tensor, cfg: ModelConfig) -> dict[str, Tensor]:
    """The parameters that one row of a plan makes of its tensor."""
    _, targets, transform = row
    parts = (tensor,) * len(targets) if transform is None else transform(tensor, cfg)
    return dict(zip(targets, parts, strict=True))


def refuse_not_finite(name: str, tensor: Tensor, where: str, todo: str) -> None:
    """Raise CheckpointError when a tensor holds NaN or infinity, with their count.

    The sum is not finite if any number is not; only when it is not (it may just be large) are the numbers counted.
    """
    if not tensor.numel() or bool(torch.isfinite(tensor.sum(dtype=torch.float32))):
        return
    bad = int((~torch.isfinite(tensor)).sum())
    if bad:
        nans = int(torch.isnan(tensor).sum())
        raise CheckpointError(
            f"tensor {name} holds {nans} NaN and {bad - nans} infinite of {tensor.numel():,} numbers",
            expected="finite weights",
            where=where,
            todo=todo,
        )
