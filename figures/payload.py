"""The wire format between Python and a canvas component: one blob, a JSON header and binary arrays.

Streamlit's components take raw bytes only as the whole of their data (bytes inside a dict become text without an
error), so everything a component needs travels in one blob:

    u32 n | n bytes of JSON, padded with spaces so that 4 + n is a multiple of 8 | array 0 | pad | array 1 | pad ...

All little endian; every array starts at a multiple of 8 bytes. The header is the caller's `meta` plus `arrays`: for
each array its dtype, shape, offset (from the end of the header) and length in bytes. The reading half is in
`assets/components/shared/shared.js`.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

DTYPES = ("uint8", "int32", "float16", "float32", "float64")
"""What the browser's half can read."""


def pack(meta: dict[str, Any], *arrays: np.ndarray) -> bytes:
    """The blob of a header and arrays.

    Raises ValueError for a dtype the browser cannot read and for NaN or infinity in `meta`, which JSON has no way to
    write: numbers that may be missing go into an array, or as None.
    """
    if "arrays" in meta:
        raise ValueError("the header's field 'arrays' is written by pack; meta must not hold one")
    specs, chunks, offset = [], [], 0
    for array in arrays:
        if array.dtype.name not in DTYPES:
            raise ValueError(f"found an array of {array.dtype.name}, expected one of {', '.join(DTYPES)}")
        little = array.dtype.newbyteorder("<")
        data = np.ascontiguousarray(array, dtype=little).tobytes()
        specs.append({"dtype": array.dtype.name, "shape": list(array.shape), "offset": offset, "bytes": len(data)})
        padding = -len(data) % 8
        chunks.append(data + b"\0" * padding)
        offset += len(data) + padding
    header = json.dumps({**meta, "arrays": specs}, separators=(",", ":"), allow_nan=False).encode("ascii")
    header += b" " * (-(4 + len(header)) % 8)
    return struct.pack("<I", len(header)) + header + b"".join(chunks)


def unpack(blob: bytes) -> tuple[dict[str, Any], list[np.ndarray]]:
    """The header, without its `arrays` field, and the arrays of a blob made by `pack` (read-only views)."""
    (length,) = struct.unpack_from("<I", blob)
    meta = json.loads(blob[4 : 4 + length])
    start = 4 + length
    arrays = []
    for spec in meta.pop("arrays"):
        dtype = np.dtype(spec["dtype"]).newbyteorder("<")
        flat = np.frombuffer(blob, dtype, count=spec["bytes"] // dtype.itemsize, offset=start + spec["offset"])
        arrays.append(flat.reshape(spec["shape"]))
    return meta, arrays
