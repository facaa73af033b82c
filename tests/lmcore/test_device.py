"""Devices, dtypes and the memory that a model may take."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import torch

from lmcore import device
from lmcore.errors import InputError


def test_the_cpu_is_always_there_and_last() -> None:
    assert device.devices()[-1] == "cpu"
    assert device.pick_device() == device.devices()[0]
    assert device.pick_device("cpu") == "cpu"


def test_order_is_cuda_mps_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert device.devices() == ["cuda", "mps", "cpu"]
    assert device.pick_device("cuda:0") == "cuda:0"


def test_a_device_that_is_absent_is_an_input_error() -> None:
    with pytest.raises(InputError, match="tpu"):
        device.pick_device("tpu")


@pytest.mark.parametrize(
    ("name", "dtype"), [("cpu", "float32"), ("mps", "float32"), ("cuda", "bfloat16"), ("cuda:1", "bfloat16")]
)
def test_default_dtype(name: str, dtype: str) -> None:
    assert device.default_dtype(name) == device.pick_dtype(None, name) == dtype


def test_dtypes_and_their_sizes_are_torchs() -> None:
    for name, itemsize in device.DTYPES.items():
        assert getattr(torch, name).itemsize == itemsize
        assert device.pick_dtype(name, "cpu") == name
    with pytest.raises(InputError, match="float8"):
        device.pick_dtype("float8", "cpu")


def test_available_memory_is_part_of_the_machines() -> None:
    assert 0 < device.available_bytes("cpu") <= psutil.virtual_memory().total


def test_a_containers_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("600000\n")
    (tmp_path / "memory.stat").write_text("anon 100\ninactive_file 50000\n")
    assert device.available_bytes("cpu") == 450_000
    (tmp_path / "memory.max").write_text("max\n")
    assert device.available_bytes("cpu") > 1_000_000
