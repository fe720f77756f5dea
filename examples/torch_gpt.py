"""A small GPT in plain PyTorch with the attention of regard, trained on this file's own text, character by character.

`regard.attention` takes tensors as it takes arrays, and PyTorch's autograd goes through the kernel's gradients. Nothing
is downloaded. Needs ``pip install torch``.
"""

from pathlib import Path

import torch
from torch import nn

import regard

WIDTH, HEADS, LAYERS, CONTEXT, BATCH, STEPS = 64, 4, 2, 48, 8, 60


class Block(nn.Module):  # type: ignore[misc]
    """Attention and a perceptron, each with a norm before and a residual around it."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the next embeddings, B T E."""
        q, k, v = self.qkv(self.attention_norm(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)  # B H T D each
        context = regard.attention(q, k, v, causal=True)
        x = x + self.out(context.transpose(1, 2).flatten(2))
        return x + self.mlp(self.mlp_norm(x))


class GPT(nn.Module):  # type: ignore[misc]
    """A decoder with learned positions."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the logits, B T V, of ids, B T."""
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def main() -> None:
    """Train, print how the loss falls, and write some text."""
    torch.manual_seed(0)
    text = Path(__file__).read_text(encoding="utf-8")
    letters = sorted(set(text))
    ids = torch.tensor([letters.index(letter) for letter in text])
    model = GPT(len(letters))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    losses = []
    for _ in range(STEPS):
        starts = torch.randint(len(ids) - CONTEXT, (BATCH,))
        batch = ids[starts[:, None] + torch.arange(CONTEXT + 1)]
        loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"loss: {losses[0]:.3f} at first, {sum(losses[-10:]) / 10:.3f} after {STEPS} steps")

    # Each letter is drawn from what the model expects after the text so far.
    written = ids[:16]
    with torch.no_grad():
        for _ in range(80):
            logits = model(written[None, -CONTEXT:])[0, -1]
            written = torch.cat([written, torch.multinomial((logits / 0.7).softmax(-1), 1)])
    print("it writes:", repr("".join(letters[i] for i in written[16:])))


if __name__ == "__main__":
    main()
