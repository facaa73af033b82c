"""RoPE scalings: the frequencies and the attention factor themselves, derived again here and by `transformers`.

The second derivation works pair by pair in plain Python: a ramp that is mirrored or a bound that is rounded the wrong
way moves no shape and few logits, so that nothing but the numbers shows it.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from lmcore.config import Rope
from lmcore.families import config_from_hf
from lmcore.frequencies import FREQUENCIES, frequencies
from tests.lmcore.tiny import BASE

SHORT = tuple(1 + 0.03 * i for i in range(32))
LONG = tuple(1 + 1.7 * i for i in range(32))
YARN = {"type": "yarn", "factor": 4.0, "original_max_positions": 512}
LLAMA3 = {"type": "llama3", "factor": 8.0, "original_max_positions": 512}
SPECS = {
    "default": {},
    "linear": {"type": "linear", "factor": 8.0},
    "ntk": {"type": "ntk", "factor": 4.0},
    "dynamic": {"type": "dynamic", "factor": 2.0, "max_positions": 512},
    "yarn": YARN,
    "yarn, bounds not rounded": YARN | {"truncate": False},
    "yarn, other betas": YARN | {"beta_fast": 16.0, "beta_slow": 2.0},
    "yarn, factor given": YARN | {"attention_factor": 1.0},
    "yarn, both mscales": YARN | {"mscale": 0.7, "mscale_all_dim": 1.3},
    "yarn, ramp of no length": YARN | {"beta_fast": 2.0, "beta_slow": 2.0, "truncate": False},
    "yarn, ramp from the first pair": YARN | {"original_max_positions": 64, "beta_fast": 100.0},
    "llama3": LLAMA3,
    "llama3, other bounds": LLAMA3 | {"low_freq_factor": 2.0, "high_freq_factor": 16.0},
    "longrope": {
        "type": "longrope",
        "factor": 8.0,
        "original_max_positions": 512,
        "short_factor": SHORT,
        "long_factor": LONG,
    },
    "longrope, factor given": {
        "type": "longrope",
        "factor": 8.0,
        "original_max_positions": 512,
        "attention_factor": 1.25,
        "short_factor": SHORT,
        "long_factor": LONG,
    },
    "divided": {"type": "divided", "short_factor": SHORT},
    "proportional": {"type": "proportional", "factor": 2.0, "rotated_fraction": 0.25},
}
LENGTHS = (1, 511, 512, 513, 1000, 4096)


def rope(name: str, dim: int = 64, base: float = 10_000.0) -> Rope:
    return Rope(rotary_dim=dim, base=base, **SPECS[name])


def theta_of_pair(r: Rope, pair: int, length: int) -> float:
    """One frequency, by the wavelength or the number of turns of the pair rather than by its index."""
    d = r.rotary_dim
    theta = math.exp(-math.log(r.base) * 2 * pair / d)
    if r.type == "linear":
        return theta / r.factor
    if r.type in ("ntk", "dynamic"):
        s = r.factor
        if r.type == "dynamic":
            assert r.max_positions is not None
            over = max(0.0, length / r.max_positions - 1)
            s = 1 + r.factor * over
        # base' = base s^(d / (d - 2)) moves pair i by s^(-2i / (d - 2)).
        return theta * s ** (-2 * pair / (d - 2))
    if r.type == "yarn":
        assert r.original_max_positions is not None
        kept = 1 - ramp_of_pair(r, pair)
        return theta * (kept + (1 - kept) / r.factor)
    if r.type == "llama3":
        assert r.original_max_positions is not None
        wavelength = 2 * math.pi / theta
        if wavelength > r.original_max_positions / r.low_freq_factor:
            return theta / r.factor
        if wavelength < r.original_max_positions / r.high_freq_factor:
            return theta
        smooth = r.original_max_positions / wavelength - r.low_freq_factor
        smooth /= r.high_freq_factor - r.low_freq_factor
        return theta * (smooth + (1 - smooth) / r.factor)
    if r.type == "longrope":
        assert r.original_max_positions is not None
        return theta / (r.short_factor if length <= r.original_max_positions else r.long_factor)[pair]
    if r.type == "divided":
        return theta / r.short_factor[pair]
    if r.type == "proportional":
        return theta / r.factor if pair < r.rotated_fraction * d / 2 else 0.0
    return theta


def ramp_of_pair(r: Rope, pair: int) -> float:
    """YaRN: 0 for pairs that make more than `beta_fast` turns in the trained length, 1 under `beta_slow`; between them
    linear in the index. Turns of a pair at a real index x: L / (2 pi base^(2x / d)).
    """
    assert r.original_max_positions is not None

    trained = r.original_max_positions

    def index(turns: float) -> float:
        return r.rotary_dim / 2 * math.log(trained / 2 / math.pi / turns, r.base)

    first, last = index(r.beta_fast), index(r.beta_slow)
    if r.truncate:
        first, last = float(math.floor(first)), float(math.ceil(last))
    first, last = max(first, 0.0), min(last, r.rotary_dim - 1.0)
    if first == last:
        last += 0.001
    return min(1.0, max(0.0, (pair - first) / (last - first)))


def factor_of(r: Rope) -> float:
    if r.type not in ("yarn", "longrope"):
        return 1.0
    if r.attention_factor is not None:
        return r.attention_factor
    log = math.log(r.factor)
    if r.type == "longrope":
        assert r.original_max_positions is not None
        return (1 + log / math.log(r.original_max_positions)) ** 0.5
    if r.mscale and r.mscale_all_dim:
        return (1 + r.mscale * log / 10) / (1 + r.mscale_all_dim * log / 10)
    return 1 + log / 10


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", SPECS)
def test_the_paper(name: str, length: int) -> None:
    for dim in (64, 2 * len(SHORT)):
        spec = rope(name, dim)
        theta, factor = frequencies(spec, length)
        assert theta.dtype == np.float64
        expected = [theta_of_pair(spec, pair, length) for pair in range(dim // 2)]
        np.testing.assert_allclose(theta, expected, rtol=1e-12, atol=0)
        assert factor == pytest.approx(factor_of(spec), rel=1e-12)


def test_every_type_is_here() -> None:
    assert {spec.get("type", "default") for spec in SPECS.values()} == set(FREQUENCIES)


HF_NAMES = {"original_max_positions": "original_max_position_embeddings", "type": "rope_type"}
IN_TRANSFORMERS = [name for name in SPECS if SPECS[name].get("type") not in ("ntk", "divided")]


def hf_parameters(name: str) -> dict:
    spec = dict(SPECS[name])
    spec.pop("max_positions", None)
    if "rotated_fraction" in spec:
        spec["partial_rotary_factor"] = spec.pop("rotated_fraction")
    named = {HF_NAMES.get(key, key): list(v) if isinstance(v, tuple) else v for key, v in spec.items()}
    if spec.get("type") == "llama3":
        named = {"low_freq_factor": 1.0, "high_freq_factor": 4.0} | named
    return {"rope_theta": 10_000.0, "rope_type": "default"} | named


def hf_frequencies(name: str, length: int) -> tuple[np.ndarray, float]:
    """As the reference computes them, in float32 (its plain type has no function of its own: factor 1 of linear)."""
    parameters = hf_parameters(name)
    if parameters["rope_type"] == "default":
        parameters |= {"rope_type": "linear", "factor": 1.0}
    config = LlamaConfig(**BASE | {"head_dim": 64, "max_position_embeddings": 512, "rope_parameters": parameters})
    theta, factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, torch.device("cpu"), seq_len=length)
    return theta.double().numpy(), float(factor)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", IN_TRANSFORMERS)
def test_transformers(name: str, length: int) -> None:
    theta, factor = frequencies(rope(name), length)
    reference, reference_factor = hf_frequencies(name, length)
    # float32 powers of a large base are off by a few units in the last place.
    np.testing.assert_allclose(theta, reference, rtol=1e-6, atol=1e-12)
    assert factor == pytest.approx(reference_factor, rel=1e-6)


def test_a_mirrored_ramp_would_show() -> None:
    """Negative control: the ramp run backwards, as one library has it, is far outside both tolerances."""
    spec = rope("yarn")
    theta, _ = frequencies(spec, 1)
    plain, _ = frequencies(rope("default"), 1)
    mirrored = [
        plain[i] * (ramp_of_pair(spec, i) + (1 - ramp_of_pair(spec, i)) / spec.factor) for i in range(len(plain))
    ]
    assert np.abs(theta / mirrored - 1).max() > 0.1


def llama(**changes: object) -> dict:
    return {"model_type": "llama"} | BASE | {"head_dim": 64, "max_position_embeddings": 2048} | changes


# Real models: id, config, length, the factor, and five of the frequencies (float64 values of the formula, checked by
# hand against the models' reports), by index.
PHI3 = {"short_factor": [1 + 0.01 * i for i in range(48)], "long_factor": [1.03 + 1.3 * i for i in range(48)]}
REAL = [
    (
        "Llama 3.1 8B",
        128,
        131_072,
        {"rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0}
        | {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
        None,
        1.0,
        {
            1: 0.814617233857,
            16: 0.0376060309309,
            32: 0.000524846160993,
            48: 6.64786987118e-06,
            63: 3.06892598891e-07,
        },
    ),
    (
        "DeepSeek-V3",
        64,
        163_840,
        {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 40.0, "beta_fast": 32, "beta_slow": 1}
        | {"mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096},
        None,
        1.0,
        {1: 0.749894209332, 8: 0.1, 16: 0.0055, 24: 2.5e-05, 31: 3.33380358041e-06},
    ),
    (
        "Qwen2.5 with YaRN",
        128,
        32_768,
        {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32_768},
        None,
        1.13862943611,
        {
            1: 0.805842187761,
            16: 0.0316227766017,
            32: 0.000602941176471,
            48: 7.90569415042e-06,
            63: 3.10234440188e-07,
        },
    ),
    (
        "dynamic, twice the trained length",
        128,
        2048,
        {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0},
        4096,
        1.0,
        {1: 0.850994291341, 16: 0.0756530337024, 32: 0.00572338150838, 48: 0.000432991174145, 63: 3.8492732823e-05},
    ),
    (
        "LLaMA-2-7B-32K",
        128,
        32_768,
        {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 8.0},
        None,
        1.0,
        {1: 0.10824554042, 16: 0.0125, 32: 0.00125, 48: 0.000125, 63: 1.44347748086e-05},
    ),
    (
        "Phi-3-mini-128k, short",
        96,
        131_072,
        {"rope_type": "longrope", "rope_theta": 10_000.0, "original_max_position_embeddings": 4096} | PHI3,
        4000,
        1.19023807142,
        {1: 0.817231866602, 12: 0.0892857142857, 24: 0.00806451612903, 36: 0.000735294117647, 47: 8.24168475258e-05},
    ),
    (
        "Mistral-Nemo, whose head dim is not D / H",
        128,
        131_072,
        {"rope_type": "default", "rope_theta": 1e6},
        None,
        1.0,
        {1: 0.805842187761, 16: 0.0316227766017, 32: 0.001, 48: 3.16227766017e-05, 63: 1.24093776075e-06},
    ),
]


@pytest.mark.parametrize(
    ("dim", "longest", "parameters", "length", "factor", "values"), [row[1:] for row in REAL], ids=[r[0] for r in REAL]
)
def test_real_models(
    dim: int, longest: int, parameters: dict, length: int | None, factor: float, values: dict[int, float]
) -> None:
    raw = llama(max_position_embeddings=longest, head_dim=dim, rope_parameters=parameters)
    spec = config_from_hf(raw)[0].rope
    assert spec is not None
    theta, found = frequencies(spec, length or 1)
    assert theta.shape == (dim // 2,)
    np.testing.assert_allclose([theta[i] for i in values], list(values.values()), rtol=1e-11)
    assert found == pytest.approx(factor, abs=1e-9)
