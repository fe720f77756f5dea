"""The estimates of edges beside a plain computation with PyTorch: every reader has a copy of the residual stream."""

import numpy as np
import torch
from transformers import AutoModelForCausalLM

import golden
import regard

CASE, TO, VERSUS = "gpt2/plain", 3, 4
IDS, OTHER = [5, 9, 4, 9, 11, 6, 5], [5, 9, 4, 7, 11, 6, 5]
POINTS = 5


class Run:
    """A forward pass of GPT-2 in which every query, key and value, MLP and the logits read copies of their own."""

    def __init__(self, model, embeddings):
        self.readers, self.written = {}, {"token embedding": embeddings}
        config, H = model.config, model.config.n_head
        D, body, length = config.n_embd // H, model.transformer, len(embeddings)
        x = embeddings + body.wpe.weight[:length]
        causal = torch.full((length, length), -torch.inf, dtype=x.dtype).triu(1)
        for i, block in enumerate(body.h):
            outputs = []
            (w_q, w_k, w_v), biases = block.attn.c_attn.weight.split(config.n_embd, 1), block.attn.c_attn.bias
            for head in range(H):
                at = slice(head * D, (head + 1) * D)
                q, k, v = (
                    block.ln_1(self.read(f"L{i}H{head} {name}", x)) @ w[:, at] + b[at]
                    for name, w, b in zip(
                        ("query", "key", "value"), (w_q, w_k, w_v), biases.split(config.n_embd), strict=True
                    )
                )
                weights = (q @ k.T / D**0.5 + causal).softmax(-1)
                outputs.append(self.write(f"L{i}H{head}", weights @ v @ block.attn.c_proj.weight[at]))
            x = x + sum(outputs) + block.attn.c_proj.bias
            x = x + self.write(f"L{i} MLP", block.mlp(block.ln_2(self.read(f"L{i} MLP", x))))
        logits = model.lm_head(body.ln_f(self.read("logits", x)))[-1]
        self.number = logits[TO] - logits[VERSUS]

    def read(self, name, x):
        self.readers[name] = x.clone()
        self.readers[name].retain_grad()
        return self.readers[name]

    def write(self, name, x):
        self.written[name] = x
        return x


def expected():
    """Return the score of each edge by its writer and reader, and the number of both texts."""
    model = AutoModelForCausalLM.from_pretrained(
        golden.FOLDER / CASE, attn_implementation="eager", dtype=torch.float64
    ).eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    table = model.transformer.wte.weight
    clean, other = (Run(model, table[ids].clone().requires_grad_()) for ids in (IDS, OTHER))
    logits = model(torch.tensor([IDS])).logits[0, -1]
    torch.testing.assert_close(clean.number.detach(), logits[TO] - logits[VERSUS])
    nodes, weights = np.polynomial.legendre.leggauss(POINTS)
    gradients = {}
    for node, weight in zip(nodes, weights, strict=True):
        point = table[OTHER] + (node + 1) / 2 * (table[IDS] - table[OTHER])
        run = Run(model, point.clone().requires_grad_())
        run.number.backward()
        for name, read in run.readers.items():
            gradients[name] = gradients.get(name, 0) + weight / 2 * read.grad
    changes = {name: (clean.written[name] - other.written[name]).detach() for name in clean.written}
    return {(w, r): float((changes[w] * gradients[r]).sum()) for w in changes for r in gradients}, (
        clean.number.item(),
        other.number.item(),
    )


def test_the_estimates_and_numbers_are_those_of_a_plain_computation():
    scores, (value, baseline_value) = expected()
    model = regard.load(golden.FOLDER / CASE, dtype=np.float64)
    graph = model.paths(IDS, TO, VERSUS, corrupted=OTHER, edges=1000)
    assert abs(graph.value - value) < 1e-9
    assert abs(graph.baseline_value - baseline_value) < 1e-9
    assert len(graph.edges) > 50
    for edge in graph.edges:
        np.testing.assert_allclose(edge.score, scores[edge.writer.label, edge.reader.label], rtol=1e-7, atol=1e-9)
