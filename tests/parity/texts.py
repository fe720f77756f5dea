"""Varied texts: every script, odd spaces, hostile characters, long words, and lengths up to a model's limit."""

import numpy as np

TEXTS = [
    "a",
    "The cat sat on the mat",
    "The quick brown fox jumps over the lazy dog.",
    "She sat on the river bank, watching the water; he went to the bank for a loan!",
    "Unbelievably, antidisestablishmentarianism isn't pneumonoultramicroscopicsilicovolcanoconiosis.",
    "Naïve café, Ångström, façade, coöperate, İstanbul, ẞ, ﬁ",
    "naïve café decomposed Å",
    "猫坐在垫子上。吾輩は猫である。고양이가 앉았다",
    "القطة جلست على السجادة",
    "החתול ישב על המחצלת",
    "बिल्ली चटाई पर बैठी",
    "😀 👩‍👩‍👧‍👦 🏳️‍🌈 emoji 🤷🏽‍♀️",
    "tabs\tand\nnew\r\nlines  and   spaces\u00a0\u2003here\u200b",
    "[CLS] the [MASK] sat [SEP] on [PAD] [UNK]",
    "<script>alert('x')</script> \"><img onerror=y> $x^2$ \\n %s {0}",
    "\x00\x07\x1b[31mred\u202eevil\ufffd",
    "1234567890 3.14159 1,000,000 2026-11-21 0x1F €100 ½ ²",
    "don't can't o'clock rock'n'roll re-enter e-mail@example.com https://example.com/a?b=c#d",
    "x" * 99 + " " + "y" * 101 + " " + "ab" * 300,
    " ".join(["attention"] * 510),
]
"""Twenty; the first has one word, the last fills MiniLM's 512 positions."""


def varied_strings(count: int) -> list[str]:
    """Return `count` different strings mixed from `TEXTS` and random characters, always the same ones."""
    rng = np.random.default_rng(8)
    words = " ".join(TEXTS[:-2]).split(" ")
    ranges = [(0x20, 0x7F), (0xA0, 0x250), (0x370, 0x600), (0x900, 0xE00), (0x3040, 0x3200), (0x4E00, 0x9000)]
    strings = list(TEXTS[:-1])
    while len(strings) < count:
        picked = [words[i] for i in rng.integers(0, len(words), rng.integers(0, 12))]
        low, high = ranges[rng.integers(len(ranges))]
        picked.append("".join(map(chr, rng.integers(low, high, rng.integers(0, 9)))))
        mixed = " ".join(picked[i] for i in rng.permutation(len(picked)))
        strings += [mixed] * (mixed not in strings)
    return strings
