"""A process that renders one chat template and ends: run by `lmcore.chat`, never imported by it.

A template comes with the weights, from anyone. Jinja's sandbox keeps it from the Python around it, but not from looping
for ever or from filling the memory; the limits of a process do. Reads and writes one JSON object.
"""

from __future__ import annotations

import contextlib
import json
import sys
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.runtime import LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

_DATA = (str, int, float, bool, list, tuple, dict, type(None), LoopContext, Namespace, Undefined)


class Refused(TemplateError):
    """The template itself says that it does not take these messages."""


class Environment(ImmutableSandboxedEnvironment):
    """The sandbox, with attributes of plain data only, set up as the templates' authors expect it."""

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
        self.globals = {"range": self.globals["range"], "namespace": PlainNamespace, "dict": lambda **items: items}
        self.globals |= {"raise_exception": _refuse, "strftime_now": lambda form: datetime.now().strftime(form)}
        self.filters["tojson"] = _tojson

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return isinstance(obj, _DATA) and super().is_safe_attribute(obj, attr, value)


class PlainNamespace(Namespace):
    """A namespace whose names do not begin with an underscore: those mean something to Python."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise SecurityError(f"a namespace has no {name!r}")
        super().__setitem__(name, value)


class Generation(Extension):
    """`{% generation %}` marks what the model writes, for training; here it is text like any other."""

    tags = {"generation"}  # noqa: RUF012 as jinja's own class has it

    def parse(self, parser: Any) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("as_it_is"), [], [], body).set_lineno(line)

    def as_it_is(self, caller: Macro) -> str:
        return caller()


def _refuse(message: str) -> NoReturn:
    raise Refused(message)


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: Any = False
) -> str:
    # Not jinja's own, which escapes for HTML.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _limit(seconds: int, memory_bytes: int) -> None:
    """No more time, memory or files than this, where the system can say so (Windows cannot)."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        for what, most in (
            (resource.RLIMIT_CPU, seconds),
            (resource.RLIMIT_AS, memory_bytes),
            (resource.RLIMIT_FSIZE, 0),
            (resource.RLIMIT_NPROC, 0),
        ):
            resource.setrlimit(what, (most, most))


def _render(job: dict[str, Any]) -> dict[str, str]:
    pieces, size = [], 0
    try:
        for piece in Environment().from_string(job["template"]).generate(**job["variables"]):
            pieces.append(piece)
            size += len(piece)
            if size > job["max_characters"]:
                return {"error": f"it writes more than {job['max_characters']:,} characters"}
    except Refused as error:
        return {"refused": str(error)}
    except MemoryError:
        return {"error": "it needs too much memory"}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"text": "".join(pieces)}


if __name__ == "__main__":
    request = json.load(sys.stdin)
    _limit(request["seconds"], request["memory_bytes"])
    sys.stdout.write(json.dumps(_render(request)))
