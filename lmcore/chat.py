"""Chat templates: messages written out as the text that a model was tuned on, then cut into tokens.

The template is a Jinja program that comes with the weights. It runs in a sandbox and in a process of its own, with
bounds on time, memory and output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from lmcore.errors import CheckpointError, InputError
from lmcore.tokenizer import Tokenizer
from lmcore.tokenizer_files import special_names, template_of

MAX_CHARACTERS = 2**20
MAX_MESSAGES = 1000
MEMORY_BYTES = 512 * 2**20
CPU_S = 2
# Includes the start of the process on a machine that is busy.
WALL_S = 10.0
_WORKER = Path(__file__).with_name("chat_worker.py")


class Chat(NamedTuple):
    """Messages as the model's template writes them out, and the tokens of that text."""

    text: str
    ids: list[int]


def render_chat(
    source: Tokenizer | Path, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True
) -> str:
    """The text of messages ({"role": .., "content": ..}) by the template of a tokenizer, or of a folder.

    With `add_generation_prompt` it ends where the model's answer begins. Raises InputError for messages that the
    template refuses, CheckpointError when there is no template, or one that fails or does not come to an end.
    """
    if isinstance(source, Tokenizer):
        template, specials = source.chat_template, source.special_names
    else:
        template, specials = template_of(source), special_names(source)
    if template is None:
        raise CheckpointError(
            "the model has no chat template",
            expected="chat_template in tokenizer_config.json, chat_template.jinja, or one in the GGUF metadata",
            todo="Type the prompt as plain text.",
        )
    _refuse_messages(messages)
    variables = {name: value for name, value in specials.items() if name.endswith("_token")}
    variables |= {"messages": [dict(message) for message in messages], "add_generation_prompt": add_generation_prompt}
    variables |= {"tools": None, "documents": None}
    answer = _in_a_process({"template": template, "variables": variables})
    if "refused" in answer:
        raise InputError(f"the chat template refuses these messages ({answer['refused'][:200]})", where="the messages")
    if "text" not in answer:
        raise _failed(answer.get("error", ""))
    return answer["text"]


def encode_chat(
    tokenizer: Tokenizer, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True
) -> Chat:
    """The text of messages and its tokens; the template writes the BOS, so the tokenizer adds none."""
    text = render_chat(tokenizer, messages, add_generation_prompt=add_generation_prompt)
    return Chat(text, tokenizer.encode(text, add_special=False))


def _refuse_messages(messages: Sequence[Mapping[str, str]]) -> None:
    if not 0 < len(messages) <= MAX_MESSAGES:
        raise InputError(f"there are {len(messages)} messages", expected=f"1 to {MAX_MESSAGES}")
    for number, message in enumerate(messages):
        if not all(isinstance(message.get(key), str) for key in ("role", "content")):
            raise InputError(f"message {number + 1} is {str(message)[:80]}", expected="a role and a content, both text")
    size = sum(len(message["role"]) + len(message["content"]) for message in messages)
    if size > MAX_CHARACTERS:
        raise InputError(f"the messages have {size:,} characters", expected=f"at most {MAX_CHARACTERS:,}")


def _in_a_process(job: dict[str, object]) -> dict[str, str]:
    limits = {"seconds": CPU_S, "memory_bytes": MEMORY_BYTES, "max_characters": 2 * MAX_CHARACTERS}
    kept = {name: os.environ[name] for name in ("SYSTEMROOT", "TZ") if name in os.environ}
    try:
        done = subprocess.run(
            # Isolated: neither PYTHONPATH nor the folder of the script, whose modules have names like `trace`.
            [sys.executable, "-I", "-X", "utf8", str(_WORKER)],
            input=json.dumps(job | limits),
            capture_output=True,
            encoding="utf-8",
            timeout=WALL_S,
            env=kept,
            check=False,
        )
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired as error:
        raise _failed("it does not come to an end") from error
    except OSError as error:
        raise _failed(f"the process for it cannot be started: {error.strerror}") from error
    except ValueError as error:  # nothing, or half an answer: ended by the system, at one of the limits
        raise _failed("it takes too long or needs too much memory") from error
    return answer if isinstance(answer, dict) else {}


def _failed(why: str) -> CheckpointError:
    return CheckpointError(
        f"the chat template fails ({why[:200]})",
        expected="a template that ends with a text",
        todo="Type the prompt as plain text.",
    )
