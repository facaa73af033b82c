"""The wire format: what goes in comes out, aligned as a browser's typed arrays need it."""

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from figures.payload import DTYPES, pack, unpack

ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda name: npst.arrays(np.dtype(name), npst.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5))
)


@given(
    st.lists(ARRAYS, max_size=5), st.dictionaries(st.text(max_size=8), st.text(max_size=20) | st.integers(), max_size=4)
)
def test_what_goes_in_comes_out(arrays, meta):
    meta.pop("arrays", None)
    header, read = unpack(pack(meta, *arrays))
    assert header == meta
    assert len(read) == len(arrays)
    for before, after in zip(arrays, read, strict=True):
        assert before.dtype == after.dtype
        assert before.shape == after.shape
        assert before.tobytes() == after.tobytes()


@given(st.lists(ARRAYS, max_size=4), st.text(max_size=9))
def test_every_array_starts_at_a_multiple_of_eight(arrays, text):
    blob = pack({"text": text}, *arrays)
    (length,) = struct.unpack_from("<I", blob)
    assert (4 + length) % 8 == 0
    for spec in json.loads(blob[4 : 4 + length])["arrays"]:
        assert spec["offset"] % 8 == 0
        assert 4 + length + spec["offset"] + spec["bytes"] <= len(blob)


def test_big_endian_and_strided_arrays_are_written_little_endian_and_contiguous():
    array = np.arange(12, dtype=">f4").reshape(3, 4)[:, ::2]
    _, (read,) = unpack(pack({}, array))
    assert read.dtype == np.dtype("<f4")
    assert np.array_equal(read, array)


@pytest.mark.parametrize("array", [np.zeros(2, np.int64), np.zeros(2, bool), np.array(["a"])])
def test_a_dtype_the_browser_cannot_read_is_refused_by_name(array):
    with pytest.raises(ValueError, match=array.dtype.name):
        pack({}, array)


def test_numbers_that_json_cannot_hold_are_refused():
    with pytest.raises(ValueError, match="JSON"):
        pack({"loss": float("nan")})
    with pytest.raises(ValueError, match="arrays"):
        pack({"arrays": []})
