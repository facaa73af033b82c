"""Chat templates: the text of `transformers`, the right tokens, one BOS; and templates that mean harm."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from lmcore import chat, load_pretrained
from lmcore.chat import encode_chat, render_chat
from lmcore.errors import CheckpointError, InputError
from lmcore.tokenizer import Tokenizer
from tests.lmcore.gguf_files import write_gguf
from tests.lmcore.test_tokenizer import byte_level
from tests.lmcore.tiny import hf_llama

SYSTEM = [{"role": "system", "content": "Be brief.  "}]
USER = [{"role": "user", "content": ' Hi <b>&amp; "you"\n\nあ 😀 {{ 1 }} '}]
TALK = [*USER, {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "More"}]
CONVERSATIONS = {"user": USER, "system": SYSTEM + USER, "talk": TALK}

# What the templates of real families do, each in a few lines.
TEMPLATES = {
    "chatml": """
        {%- for message in messages %}
          {{- '<|im_start|>' + message['role'] + '\n' + message.content + '<|im_end|>\n' }}
        {%- endfor %}
        {%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}""",
    "headers": """{{- bos_token }}{% for m in messages %}
        {% set text = '[' ~ m.role ~ ']' + m.content | trim + eos_token %}
        {% if loop.first %}{{ '#' ~ loop.index0 }}{% endif %}{{ text }}{% endfor %}
        {{- '[assistant]' if add_generation_prompt else '' }}""",
    "blocks": """{% for m in messages %}
        {% if m.role == 'user' %}
            U: {{ m.content.strip() }}
        {% endif %}
        {% endfor %}A:""",
    "state": """{% set ns = namespace(system='', n=0) %}{% for m in messages %}{% if m['role'] == 'system' %}
        {% set ns.system = m['content'].upper() %}{% continue %}{% endif %}{% set ns.n = ns.n + 1 %}
        {{ ns.n }}{{ ns.system }}{{ m.content.split('\n')[0][1:] }}
        {% if ns.n > 1 %}{% break %}{% endif %}{% endfor %}""",
    "json": """{% for m in messages %}{{ m | tojson }}{{ m | tojson(indent=2) }}{{ m.items() | list | length }}
        {{ m.get('x', 'none') }}{% endfor %}{{ tools }}""",
    "generation": """{% for m in messages %}{% if m.role == 'assistant' %}
        {% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}""",
    "macro": """{% macro turn(m, end='|') %}{{ m.role }}:{{ m.content }}{{ end }}{% endmacro %}
        {% for m in messages %}{{ turn(m) }}{% endfor %}""",
    "slice": """{% if messages[0].role == 'system' %}{% set rest = messages[1:] %}{% else %}{% set rest = messages %}
        {% endif %}{{ rest | length }}{{ rest[-1].content }}{{ dict(a=1)['a'] }}""",
    "undefined": """{% if documents is defined and documents %}d{% endif %}
        {{ enable_thinking | default('off') }}{{ unheard_of }}""",
}


def with_template(folder: Path, template: object, *, as_file: bool = False) -> Path:
    byte_level().save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "tokenizer_class": "TokenizersBackend",
    }
    if as_file:
        (folder / "chat_template.jinja").write_text(str(template))
    elif template is not None:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_the_text_is_that_of_transformers(name: str, conversation: str, tmp_path: Path) -> None:
    folder = with_template(tmp_path, TEMPLATES[name])
    theirs = AutoTokenizer.from_pretrained(folder)
    messages = CONVERSATIONS[conversation]
    for prompt in (True, False):
        expected = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
        assert render_chat(folder, messages, add_generation_prompt=prompt) == expected
        assert expected


def test_tokens_have_one_bos(tmp_path: Path) -> None:
    """The template writes a BOS and the tokenizer would add another."""
    tokenizer = Tokenizer.from_folder(with_template(tmp_path, TEMPLATES["headers"]))
    assert tokenizer.adds_bos
    written = encode_chat(tokenizer, USER)
    assert written.text.startswith("<s>#0[user]")
    assert written.ids.count(0) == 1
    assert tokenizer.bos_report(written.ids) == "once"
    assert b"".join(tokenizer.pieces(written.ids)).decode() == written.text
    assert tokenizer.bos_report(tokenizer.encode(written.text)) == "doubled"


def test_smollm2_takes_its_template_from_the_gguf_file(smollm2_source: str) -> None:
    tokenizer = load_pretrained(smollm2_source).tokenizer
    assert tokenizer is not None
    text, ids = encode_chat(tokenizer, [{"role": "user", "content": "Hi"}])
    assert "<|im_start|>user\nHi<|im_end|>\n" in text
    assert text.endswith("<|im_start|>assistant\n")
    start, end = (tokenizer.encode(name) for name in ("<|im_start|>", "<|im_end|>"))
    assert (start, end) == ([1], [2])
    assert ids[0] == 1
    assert ids.count(1) == text.count("<|im_start|>")
    assert ids.count(2) == text.count("<|im_end|>")
    assert all(tokenizer.is_special(token) for token in (1, 2))
    assert b"".join(tokenizer.pieces(ids)).decode() == text
    assert tokenizer.bos_report(ids) == "once"


def test_the_template_of_a_gguf_file(cache: Path, tmp_path: Path) -> None:
    template = "{{ bos_token }}{{ messages[0].content }}!"
    write_gguf(tmp_path / "x.gguf", hf_llama("gqa", vocab_size=260), extra={"tokenizer.chat_template": template})
    tokenizer = load_pretrained(tmp_path / "x.gguf").tokenizer
    assert tokenizer is not None
    assert render_chat(tokenizer, [{"role": "user", "content": "the"}]) == "<s>the!"


def test_where_a_template_may_stand(tmp_path: Path) -> None:
    def said(template: object, **options: bool) -> str:
        return render_chat(with_template(tmp_path, template, **options), USER)

    assert said("in the config") == "in the config"
    assert said([{"name": "tool_use", "template": "t"}, {"name": "default", "template": "of many"}]) == "of many"
    with_template(tmp_path, "in the config")
    (tmp_path / "chat_template.jinja").write_text("in its own file")
    assert render_chat(tmp_path, USER) == "in its own file"
    assert Tokenizer.from_folder(tmp_path).chat_template == "in its own file"


@pytest.mark.parametrize("template", [None, "", 5, [{"name": "other", "template": "x"}], [7], "x" * (2**20 + 1)])
def test_no_template_says_so(template: object, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no chat template"):
        render_chat(with_template(tmp_path, template), USER)


def test_what_a_template_refuses_is_the_messages_fault(tmp_path: Path) -> None:
    folder = with_template(tmp_path, "{{ raise_exception('roles must alternate') }}")
    with pytest.raises(InputError, match="roles must alternate"):
        render_chat(folder, USER)


@pytest.mark.parametrize(
    "messages",
    [[], [{}], [{"role": "user"}], [{"role": "user", "content": 5}], [{"role": "user", "content": "x" * (2**20 + 1)}]],
)
def test_messages_that_are_none(messages: list, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        render_chat(with_template(tmp_path, "x"), messages)


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ messages[0]['__class__'].__init__ }}{{ ().__class__.__base__.__subclasses__() }}",
        "{{ strftime_now.__globals__['sys'] }}",
        "{{ range.__self__ }}{{ namespace.__init__.__globals__ }}",
        "{{ self.__init__.__globals__ }}",
        "{{ (messages | attr('append'))(1) }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'a': 1}) }}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{{ cycler }}{{ cycler.__init__.__globals__.os }}",
        "{{ lipsum.__globals__.os }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{% for %}",
        "{{ 1 / 0 }}",
        "{{ messages[5].content.x }}",
        "{{ range(1000000) | list }}",
    ],
)
def test_templates_that_reach_for_more_fail(template: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="chat template fails"):
        render_chat(with_template(tmp_path, template), USER)


@pytest.mark.parametrize(
    "expression",
    ["''.__class__", "raise_exception.__globals__", "'{0.__class__}'.format(1)", "messages.__init__", "range.__self__"],
)
def test_what_is_underneath_reads_as_nothing(expression: str, tmp_path: Path) -> None:
    assert render_chat(with_template(tmp_path, f"[{{{{ {expression} }}}}]"), USER) == "[]"


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'a' * 10000000000 }}",
        "{{ 'a'.ljust(10000000000) }}{{ 'a' | center(10000000000) }}",
        "{{ '%10000000000d' | format(1) }}",
        "{{ 9 ** (9 ** 9) }}",
        "{% set ns = namespace(x='aa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}aaaaaaaaaaaaaaaaaaaaaaaa{% endfor %}{% endfor %}",
        "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "{{ " + "(" * 100_000 + " }}",
    ],
)
def test_templates_without_an_end_or_a_bound_are_ended(template: str, tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(CheckpointError, match="chat template fails"):
        render_chat(with_template(tmp_path, template), USER)
    assert time.monotonic() - started < chat.WALL_S + 2


def test_a_process_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sleeper.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr(chat, "_WORKER", tmp_path / "sleeper.py")
    monkeypatch.setattr(chat, "WALL_S", 0.5)
    with pytest.raises(CheckpointError, match="come to an end"):
        render_chat(with_template(tmp_path, "x"), USER)


def test_the_process_knows_no_secrets_and_none_of_our_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "secret")
    (tmp_path / "shows.py").write_text(
        "import json, os, sys; print(json.dumps({'text': f'{dict(os.environ)} {sys.path}'}))"
    )
    monkeypatch.setattr(chat, "_WORKER", tmp_path / "shows.py")
    said = render_chat(with_template(tmp_path, "x"), USER)
    assert "secret" not in said
    assert str(tmp_path) not in said


def test_asking_for_a_chat_imports_neither_torch_nor_jinja() -> None:
    code = "import sys, lmcore.chat; sys.exit(any(name in sys.modules for name in ('torch', 'jinja2', 'transformers')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False).returncode == 0
