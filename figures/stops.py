"""A payload with what it would be at every stop of some sliders of its page: the browser redraws while a thumb moves.

Any component can follow that way: its own payload is made once for where the sliders stand and once for every other
stop of each, the others held, and only what differs is sent. `assets/components/shared/stops.js` is the reading half.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from figures.payload import pack, unpack


@dataclass(frozen=True)
class Stops:
    """One slider: the name by its label, where it stands, and the whole payload at its other stops.

    A place is what the browser calls the thumb's value: the option's index for `st.select_slider`, the number itself
    for `st.slider`. At a place without a payload the figure waits for the server, and so it does when two sliders have
    moved, unless all but one of them are `apart`: what they change no other slider changes, and it holds wherever the
    others stand.
    """

    name: str
    at: int
    payloads: Mapping[int, bytes]
    apart: bool = False


def with_stops(payload: bytes, sliders: Sequence[Stops]) -> bytes:
    """The payload, its header's `sliders` naming for each stop what differs there; equal arrays are sent once."""
    meta, arrays = unpack(payload)
    places = {_identity(array): at for at, array in enumerate(arrays)}

    def placed(array: np.ndarray) -> int:
        at = places.setdefault(_identity(array), len(arrays))
        if at == len(arrays):
            arrays.append(array)
        return at

    own = list(arrays)
    told = []
    for slider in sliders:
        stops = {}
        for place, other in slider.payloads.items():
            its, theirs = unpack(other)
            assert len(theirs) == len(own), "a stop may change numbers and words, not how many arrays there are"
            moved = {
                str(at): placed(array) for at, array in enumerate(theirs) if _identity(array) != _identity(own[at])
            }
            stops[str(place)] = {"meta": change(meta, its), "arrays": moved}
        told.append({"name": slider.name, "at": slider.at, "apart": slider.apart, "stops": stops})
    return pack({**meta, "sliders": told}, *arrays)


def at_stop(payload: bytes, places: Mapping[str, int]) -> tuple[dict[str, Any], list[np.ndarray]] | None:
    """Header and arrays where the named sliders stand at these places, as the browser reads them; None: it waits."""
    meta, arrays = unpack(payload)
    sliders = meta.pop("sliders")
    moved = [slider for slider in sliders if places.get(slider["name"], slider["at"]) != slider["at"]]
    if sum(not slider["apart"] for slider in moved) > 1:
        return None
    drawn = list(arrays)
    for slider in moved:
        found = slider["stops"].get(str(places[slider["name"]]))
        if found is None:
            return None
        meta = changed(meta, found["meta"])
        for at, other in found["arrays"].items():
            drawn[int(at)] = arrays[other]
    return meta, drawn


def change(own: Any, other: Any) -> Any:
    """What makes `other` of `own`: [other], or for a list of the same length or an object with the same names what is
    to be changed in it, by place or name."""
    if isinstance(own, list) and isinstance(other, list) and len(own) == len(other):
        pairs = [(str(at), *pair) for at, pair in enumerate(zip(own, other, strict=True))]
    elif isinstance(own, dict) and isinstance(other, dict) and own.keys() == other.keys():
        pairs = [(name, own[name], other[name]) for name in own]
    else:
        return [other]
    return {name: change(before, after) for name, before, after in pairs if before != after}


def changed(own: Any, how: Any) -> Any:
    """`own` after what `change` gave."""
    if isinstance(how, list):
        return how[0]
    if isinstance(own, list):
        return [changed(value, how[str(at)]) if str(at) in how else value for at, value in enumerate(own)]
    return {name: changed(value, how[name]) if name in how else value for name, value in own.items()}


def _identity(array: np.ndarray) -> tuple[str, tuple[int, ...], bytes]:
    return array.dtype.name, array.shape, array.tobytes()
