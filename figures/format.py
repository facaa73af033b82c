"""How a number is written: the house's digits, signs, separators and units, as plain text.

Thousands are grouped with U+2006 (a six-per-em space, which suits the face), the minus is U+2212,
a power of ten is written with superscript digits. `assets/components/shared/shared.js` writes numbers in the browser by
the same rules.
"""

from __future__ import annotations

import math

THOUSANDS = "\u2006"
MINUS = "\u2212"
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_IEC = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def group(n: int) -> str:
    """A whole number, every digit, in groups of three: 134 515 008."""
    return f"{n:,}".replace(",", THOUSANDS).replace("-", MINUS)


def fixed(x: float, digits: int) -> str:
    """A number with `digits` decimals, its whole part grouped: 5 406.84; NaN and infinity in words."""
    if not math.isfinite(x):
        return _not_finite(x)
    text = f"{x:,.{digits}f}"
    if float(text.replace(",", "")) == 0:
        text = text.lstrip("-")
    return text.replace(",", THOUSANDS).replace("-", MINUS)


def scientific(x: float, digits: int = 1) -> str:
    """A number as a mantissa of `digits` decimals and a power of ten: 2.4 × 10⁻⁷."""
    if not math.isfinite(x):
        return _not_finite(x)
    mantissa, exponent = f"{x:.{digits}e}".split("e")
    return f"{mantissa.replace('-', MINUS)} × 10{str(int(exponent)).translate(_SUPERSCRIPT)}"


def sig(x: float, n: int = 3) -> str:
    """A number to `n` significant figures, written out between 0.0001 and a million and as a power of ten outside.

    sig(0.0123456) is 0.0123, sig(1234.5) is 1 230 and sig(2.4e-7, 2) is 2.4 × 10⁻⁷. Zero is 0.
    """
    if not math.isfinite(x):
        return _not_finite(x)
    if x == 0:
        return "0"
    rounded = float(f"{x:.{n - 1}e}")
    exponent = math.floor(math.log10(abs(rounded)))
    if not -4 <= exponent < 6:
        return scientific(rounded, n - 1)
    return fixed(rounded, max(0, n - 1 - exponent))


def bytes_iec(n: int, digits: int = 3) -> str:
    """A count of bytes in the largest binary unit it fills (1 KiB = 1024 B), to `digits` significant figures.

    Below 1024 it is exact: 900 B. An exact multiple is written without decimals: 900 KiB.
    """
    power = 0
    while power < len(_IEC) - 1 and abs(n) >= 1024 ** (power + 1):
        power += 1
    unit = 1024**power
    if n % unit == 0:
        return f"{group(n // unit)} {_IEC[power]}"
    value = n / unit
    whole_digits = len(str(int(abs(value))))
    return f"{fixed(value, max(0, digits - whole_digits))} {_IEC[power]}"


def unbroken(text: str) -> str:
    """`text` without a place to break a line inside a number, as the spaces of `group` and `sig` are to a browser."""
    return text.replace(THOUSANDS, f"\u2060{THOUSANDS}\u2060").replace(" × 10", "\u00a0×\u00a010")


def _not_finite(x: float) -> str:
    if math.isnan(x):
        return "NaN"
    return "infinity" if x > 0 else f"{MINUS}infinity"
