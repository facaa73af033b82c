"""One short sentence in several scripts, and in code: into how many tokens a tokenizer cuts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from figures.format import fixed, sig
from figures.payload import pack
from figures.table import csv_text
from figures.tokens import Token


class Sentence(NamedTuple):
    name: str
    lang: str
    text: str


SENTENCES = (
    Sentence("English", "en", "The cat sleeps on the warm stone by the river."),
    Sentence("Spanish", "es", "El gato duerme sobre la piedra caliente junto al río."),
    Sentence("German", "de", "Die Katze schläft auf dem warmen Stein am Fluss."),
    Sentence("Russian", "ru", "Кошка спит на тёплом камне у реки."),
    Sentence("Greek", "el", "Η γάτα κοιμάται στη ζεστή πέτρα δίπλα στο ποτάμι."),
    Sentence("Arabic", "ar", "القطة تنام على الحجر الدافئ قرب النهر."),
    Sentence("Hindi", "hi", "बिल्ली नदी के किनारे गर्म पत्थर पर सोती है।"),
    Sentence("Chinese", "zh", "猫在河边温暖的石头上睡觉。"),
    Sentence("Japanese", "ja", "猫は川辺の温かい石の上で眠る。"),
    Sentence("Korean", "ko", "고양이는 강가의 따뜻한 돌 위에서 잔다."),
    Sentence("Emoji", "und", "🐈 💤 🪨 🌊"),
    Sentence("Python", "und", "def warmest(stones):\n    return max(stones, key=lambda s: s.heat)\n"),
    Sentence("Numbers", "und", "3.14159 + 2026 = 2029.14159"),
)


def characters_per_token(text: str, tokens: Sequence[Token]) -> float:
    """Unicode code points over tokens."""
    return len(text) / len(tokens) if tokens else 0.0


def scripts_point(rows: Sequence[tuple[Sentence, Sequence[Token]]]) -> str:
    """The two extremes in a sentence."""
    ratios = sorted((characters_per_token(sentence.text, tokens), sentence.name) for sentence, tokens in rows)
    (low, few), (high, many) = ratios[0], ratios[-1]
    return (
        f"{many} gets {fixed(high, 2)} characters into a token, {few} {fixed(low, 2)}: "
        f"a text as long takes {sig(high / low, 2)} times the tokens."
    )


def scripts_csv(rows: Sequence[tuple[Sentence, Sequence[Token]]]) -> str:
    header = ["text", "sentence", "characters", "bytes", "tokens"]
    return csv_text(header, ([s.name, s.text, len(s.text), len(s.text.encode()), len(tokens)] for s, tokens in rows))


def scripts_payload(rows: Sequence[tuple[Sentence, Sequence[Token]]]) -> bytes:
    """The payload of the scripts component: each sentence with the tokens it was cut into, some 4 kB in all."""
    meta = {
        "rows": [
            {
                "name": sentence.name,
                "lang": sentence.lang,
                "text": sentence.text,
                "characters": len(sentence.text),
                "bytes": len(sentence.text.encode()),
                "tokens": [token.parts for token in tokens],
                "ratio": characters_per_token(sentence.text, tokens),
            }
            for sentence, tokens in rows
        ]
    }
    return pack(meta)
