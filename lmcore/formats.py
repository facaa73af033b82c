"""How many bytes numbers take when they are stored in few bits: scales and zero points counted, no torch."""

from __future__ import annotations

from dataclasses import dataclass

from lmcore.bounds import count, one_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantised:
    """`bits` a value, and for each `group` of values a scale and perhaps a zero point; no group, no scales.

    `along` says what a group runs along: "channel", neighbouring values of one position; "position", one channel over
    `group` positions, as KIVI stores keys (Liu et al. 2024, section 3). Groups that are not full have a scale, too.
    """

    bits: int
    group: int | None = None
    scale_bytes: int = 0
    zero_bytes: int = 0
    along: str = "channel"

    def __post_init__(self) -> None:
        count("bits", self.bits, 1, 64)
        if self.group is not None:
            count("group", self.group, 1)
        count("scale_bytes", self.scale_bytes, 0, 16)
        count("zero_bytes", self.zero_bytes, 0, 16)
        one_of("along", self.along, ("channel", "position"))

    def bytes_of(self, positions: int, values: int) -> int:
        """Bytes of a table of `positions` rows of `values` numbers each; a row begins on a whole byte."""
        groups = 0
        if self.group is not None and self.along == "channel":
            groups = positions * -(-values // self.group)
        elif self.group is not None:
            groups = values * -(-positions // self.group)
        return positions * -(-values * self.bits // 8) + groups * (self.scale_bytes + self.zero_bytes)


# llama.cpp's blocks of 32 values: q8_0 is 34 bytes, q5_1 24, q5_0 22, q4_1 20, q4_0 18 (ggml-common.h); KIVI groups 32
# (Liu et al. 2024, section 4.1), keys along the positions and values along the channels.
FORMATS: dict[str, Quantised | tuple[Quantised, Quantised]] = {
    "float32": Quantised(bits=32),
    "16 bit": Quantised(bits=16),
    "fp8": Quantised(bits=8),
    "q8_0": Quantised(bits=8, group=32, scale_bytes=2),
    "q5_1": Quantised(bits=5, group=32, scale_bytes=2, zero_bytes=2),
    "q5_0": Quantised(bits=5, group=32, scale_bytes=2),
    "q4_1": Quantised(bits=4, group=32, scale_bytes=2, zero_bytes=2),
    "q4_0": Quantised(bits=4, group=32, scale_bytes=2),
    "int4, groups of 128": Quantised(bits=4, group=128, scale_bytes=2, zero_bytes=2),
    "KIVI 2 bit": (
        Quantised(bits=2, group=32, scale_bytes=2, zero_bytes=2, along="position"),
        Quantised(bits=2, group=32, scale_bytes=2, zero_bytes=2),
    ),
}
