"""A small server: texts of different lengths in one batch, with keys and values in pages (continuous batching).

Every step is one forward pass over all texts that are in work: of a new text all tokens, of the others the last one.
Attention of all of them is one call of `attention_varlen`. A text that needs room gets a free page; one that is done
gives its pages back, and a waiting text takes its place in the next step. The model is a Llama with random weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from regard import attention_varlen
from regard.functional import rms_norm, rotary, split_heads, swiglu

LAYERS, H, G, D, E, VOCABULARY = 2, 4, 2, 16, 64, 100  # H query heads on G key/value heads of D features
PAGES, PAGE_SIZE, BATCH = 12, 8, 3  # pages of the cache, positions in a page, texts in work at a time


@dataclass
class Text:
    """A text in work: its tokens, how many of them are in the cache, and in which pages."""

    name: str
    tokens: list[int]
    length: int  # at the end
    cached: int = 0
    pages: list[int] = field(default_factory=list)


class Server:
    """A model with a paged cache, and the texts in work and waiting."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)

        def random(*shape: int) -> np.ndarray:
            weights: np.ndarray = rng.standard_normal(shape, np.float32) / np.float32(shape[0] ** 0.5)
            return weights

        self.embeddings = random(VOCABULARY, E) * np.float32(VOCABULARY**0.5)
        self.head = random(E, VOCABULARY)
        shapes = {"q": (E, H * D), "k": (E, G * D), "v": (E, G * D), "out": (H * D, E)}
        shapes |= {"gate": (E, 2 * E), "up": (E, 2 * E), "down": (2 * E, E)}
        self.blocks = [{name: random(*shape) for name, shape in shapes.items()} for _ in range(LAYERS)]
        self.k, self.v = np.zeros((2, LAYERS, PAGES, PAGE_SIZE, G, D), np.float32)
        self.free, self.waiting, self.running = list(range(PAGES)), list[Text](), list[Text]()

    def add(self, name: str, prompt: list[int], count: int) -> None:
        """Let a text wait for its turn; `count` tokens are to be generated."""
        self.waiting.append(Text(name, [*prompt], len(prompt) + count))

    def step(self) -> list[Text]:
        """Run all texts in work by one step; return those that are done."""
        while self.waiting and len(self.running) < BATCH and self._has_room(self.waiting[0]):
            self.running.append(self.waiting.pop(0))
            self._reserve(self.running[-1])
        for text, token in zip(self.running, self._forward().argmax(-1), strict=True):
            text.cached = len(text.tokens)
            text.tokens.append(int(token))
        done = [text for text in self.running if len(text.tokens) == text.length]
        self.running = [text for text in self.running if text not in done]
        for text in done:
            self.free += text.pages
        return done

    def _has_room(self, text: Text) -> bool:
        return len(self.free) >= -(-text.length // PAGE_SIZE)

    def _reserve(self, text: Text) -> None:
        """Give a text the pages of its whole length, so that it never waits in the middle."""
        text.pages = [self.free.pop() for _ in range(-(-text.length // PAGE_SIZE))]

    def _forward(self) -> np.ndarray:
        """Return the logits of the last token of each text, ``B V``; the new keys and values go to their pages."""
        texts = self.running
        lengths = np.array([len(text.tokens) for text in texts])
        counts = lengths - [text.cached for text in texts]  # of new tokens
        starts, ends = (np.append(0, x.cumsum()) for x in (counts, lengths))  # cu_seqlens of queries and of keys
        table = np.full((len(texts), max(len(text.pages) for text in texts)), -1)
        for row, text in zip(table, texts, strict=True):
            row[: len(text.pages)] = text.pages
        positions = np.concatenate([np.arange(t.cached, len(t.tokens)) for t in texts])
        page = np.repeat(np.arange(len(texts)), counts), positions // PAGE_SIZE
        at = table[page], positions % PAGE_SIZE  # where each new token goes

        x = self.embeddings[[token for text in texts for token in text.tokens[text.cached :]]]  # T E
        for block, k, v in zip(self.blocks, self.k, self.v, strict=True):
            normed = rms_norm(x)
            q = rotary(split_heads(normed @ block["q"], H), positions).swapaxes(0, 1)  # T H D
            k[at] = rotary(split_heads(normed @ block["k"], G), positions).swapaxes(0, 1)
            v[at] = (normed @ block["v"]).reshape(len(x), G, D)
            context = attention_varlen(q, k, v, starts, ends, causal=True, block_table=table)  # T H D
            x = x + context.reshape(len(x), H * D) @ block["out"]
            normed = rms_norm(x)
            x = x + swiglu(normed @ block["gate"], normed @ block["up"]) @ block["down"]
        logits: np.ndarray = rms_norm(x[starts[1:] - 1]) @ self.head
        return logits


def main() -> None:
    """Serve seven texts, and print who is in work in each step, and each text as it is alone."""
    rng = np.random.default_rng(1)
    sizes = {"A": (5, 9), "B": (20, 4), "C": (1, 12), "D": (11, 6), "E": (3, 3), "F": (30, 7), "G": (8, 5)}
    requests = [
        (name, rng.integers(VOCABULARY, size=prompt).tolist(), count) for name, (prompt, count) in sizes.items()
    ]
    server, found = Server(), dict[str, list[int]]()
    for request in requests:
        server.add(*request)
    steps = 0
    while server.waiting or server.running:
        done = server.step()
        names = " ".join(text.name for text in [*server.running, *done])
        steps += 1
        print(f"step {steps:2}: {names:6} {PAGES - len(server.free):2} of {PAGES} pages")
        found |= {text.name: text.tokens for text in done}

    same = 0
    for name, prompt, count in requests:
        alone = Server()
        alone.add(name, prompt, count)
        while not (done := alone.step()):
            pass
        same += done[0].tokens == found[name]
        print(name, *found[name][len(prompt) :])
    print(f"\n{len(requests)} texts in {steps} steps; {same} of them as they are alone")


if __name__ == "__main__":
    main()
