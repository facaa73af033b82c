"""What the page draws of position encodings that live in a model: read from the teaching family or the loaded one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lmcore import teaching
from ui import extrapolating, runs
from ui.lru import ByteLRU
from ui.models import Opened

if TYPE_CHECKING:
    from lmcore.order import Shuffled

WINDOWS = 4


class Table(NamedTuple):
    """A table of learned positions (P, D) in float32, and whose it is."""

    rows: np.ndarray
    owner: str


_ARRAYS: ByteLRU[np.ndarray] = ByteLRU(max_entries=16, max_bytes=32 * 2**20, size=lambda array: array.nbytes)
_SHUFFLED: ByteLRU[Shuffled] = ByteLRU(max_entries=4, max_bytes=2**20, size=lambda found: 64)


def there(name: str) -> bool:
    """Whether a teaching model is shipped."""
    return any(model.name == name for model in teaching.shipped())


def learned(opened: Opened) -> Table | None:
    """The loaded model's own table, where it has one, else that of the teaching model, if it is shipped."""
    cfg = opened.config
    if cfg.learned_positions is not None and opened.weights is not None:
        weight = opened.weights.model.embed_positions.weight
        rows = _ARRAYS.get((opened.key, "learned"), lambda: weight[cfg.position_offset :].float().cpu().numpy())
        return Table(rows, opened.name)
    if not there("learned"):
        return None

    def read() -> np.ndarray:
        return extrapolating.open_model("learned").model.embed_positions.weight.float().numpy()

    return Table(_ARRAYS.get(("teaching", "learned"), read), f"the teaching model {extrapolating.title('learned')}")


def t5_bias(opened: Opened, distances: int) -> tuple[np.ndarray, np.ndarray, str] | None:
    """T5's bias of each head at each distance (H, n), the bucket of each (n,), and whose they are: the loaded model's,
    where it has them, else the teaching model's."""
    from lmcore.positions import t5_buckets

    own = opened.weights is not None and opened.config.relative_bias is not None
    if not own and not there("t5"):
        return None
    model = opened.model if own else extrapolating.open_model("t5")
    spec = model.cfg.relative_bias
    assert spec is not None
    name = opened.name if own else f"the teaching model {extrapolating.title('t5')}"

    buckets = t5_buckets(-np.arange(distances), spec.buckets, spec.max_distance)

    def read() -> np.ndarray:
        return model.model.relative_bias.weight.float().cpu().numpy()[buckets].T

    return _ARRAYS.get((opened.key if own else "teaching", "t5", distances), read), buckets, name


def scores(name: str) -> np.ndarray:
    """Mean score of each head at each distance, row means taken out, of a teaching model on the held-out text."""

    def make() -> np.ndarray:
        from lmcore.extrapolate import windows
        from lmcore.order import scores_by_distance

        texts = windows(extrapolating.text_ids(), teaching.CONTEXT, WINDOWS)
        model = extrapolating.open_model(name)
        with runs.forwarding():
            return scores_by_distance(model, texts)

    return _ARRAYS.get(("teaching", "scores", name), make)


def shuffled(name: str) -> Shuffled:
    """What reversing the text before the last token does to a teaching model, with its mask and without."""

    def make() -> Shuffled:
        from lmcore.extrapolate import windows
        from lmcore.order import reversed_before

        text = windows(extrapolating.text_ids(), teaching.CONTEXT, 1)[0]
        model = extrapolating.open_model(name)
        with runs.forwarding():
            return reversed_before(model, text)

    return _SHUFFLED.get(name, make)
