"""What layers refuse: parts that do not fit together, and arguments that are something else."""

import numpy as np
import pytest

from regard import RegardError, nn

E = 12


def linear(*shape):
    return nn.Linear(np.ones(shape))


def block(attn=None, norms=(E, E), mlp=((E, 5), (5, E))):
    attn = nn.SelfAttention(linear(E, 6), linear(E, 6), linear(E, 6), linear(6, E)) if attn is None else attn
    first, second = (nn.LayerNorm.init(width) for width in norms)
    return nn.EncoderBlock(attn, first, nn.FeedForward(*(linear(*shape) for shape in mlp)), second)


HEADS = [
    (((2, E, 4), (E, 8), (E, 8)), r"one matrix for each head is for all three or none"),
    (((E, 8), (2, E, 4), (2, E, 4)), r"one matrix for each head is for all three or none"),
    (((4, E, 2), (2, E, 4), (2, E, 4)), r"the same number of features"),
    (((4, E, 4), (4, E, 4), (2, E, 8)), r"the same number of heads"),
    (((2, E, 4), (4, E, 4), (4, E, 4)), r"divides that of w_q"),
]
MISTAKES = [
    (lambda rng: block(nn.SelfAttention(*[linear(E, 6)] * 3)), r"attn returns 6,.* output projection"),
    (lambda rng: block(nn.SelfAttention(*[linear(E, 6)] * 3, linear(6, 1))), r"attn returns 1,"),
    (lambda rng: block(nn.SelfAttention(*[linear(5, 6)] * 3, linear(6, E))), r"attn takes 5,"),
    (lambda rng: block(mlp=((E, 5), (5, 1))), r"mlp returns 1,"),
    (lambda rng: block(mlp=((1, 5), (5, E))), r"mlp takes 1,"),
    (lambda rng: block(norms=(1, E)), r"attn_norm has 1,"),
    (lambda rng: block(norms=(E, 1)), r"mlp_norm has 1 "),
    (lambda rng: nn.FeedForward(linear(E, 5), linear(1, E)), r"\(12, 5\) and down_proj \(1, 12\) do not join"),
    (lambda rng: nn.Linear(np.ones((3, 5)), np.ones(1)), r"the bias .* must be an array \(5,\), got an array \(1,\)"),
    (lambda rng: nn.Linear(np.ones((3, 5)), [0] * 5), r"the bias .* must be an array \(5,\), got \[0"),
    (lambda rng: nn.SelfAttention(linear(E, 6), linear(5, 6), linear(5, 6)), r"q_proj takes 12 and k_proj 5"),
    (lambda rng: nn.CrossAttention(linear(E, 6), linear(5, 6), linear(4, 6)), r"k_proj takes 5 and v_proj 4"),
    (lambda rng: nn.SelfAttention(linear(E, 6), linear(E, 0), linear(E, 6)), r"k_proj makes 0"),
    (lambda rng: nn.SelfAttention(*[linear(E, 0)] * 3), r"q_proj makes 0"),
    (lambda rng: nn.SelfAttention(*[linear(E, 6)] * 3, num_heads=2.0), r"num_heads must be .* got 2\.0"),
    (lambda rng: nn.SelfAttention(8, 2), r"SelfAttention\.init\(rng, embed_dim, num_heads\)"),
    (lambda rng: nn.SelfAttention.init(8, 2), r"rng, the first argument, must be a generator.* got 8"),
    (lambda rng: nn.SelfAttention.init(42, 8, 3), r"rng, the first argument, must be a generator.* got 42"),
    (lambda rng: nn.Linear.init(42, 8, 2), r"rng, the first argument, must be a generator.* got 42"),
    (lambda rng: nn.Embedding.init(8, 2, 3), r"rng, the first argument, must be a generator.* got 8"),
    (lambda rng: nn.FeedForward.init(8, 32), r"rng, the first argument, must be a generator.* got 8"),
    (lambda rng: nn.FeedForward(8, 32), r"FeedForward\.init\(rng, embed_dim, hidden_dim\)"),
    (lambda rng: nn.FeedForward(8), r"FeedForward\.init\(rng, embed_dim, hidden_dim\)"),
    (lambda rng: nn.EncoderBlock(8, 2, 32, 4), r"EncoderBlock\.init\(rng, embed_dim, num_heads\)"),
    (lambda rng: nn.EncoderBlock(8, 2), r"EncoderBlock\.init\(rng, embed_dim, num_heads\)"),
    (lambda rng: nn.LayerNorm(5), r"LayerNorm\.init"),
    (lambda rng: nn.LayerNorm.init(4, eps=-1), r"eps must be .* got -1"),
    (lambda rng: nn.LayerNorm.init(0), r"embed_dim must be .* got 0"),
    (lambda rng: nn.SelfAttention.init(rng, 8, 2, head_dim=0), r"head_dim must be .* got 0"),
    (lambda rng: nn.SelfAttention.init(rng, 8, 2, num_kv_heads=0), r"num_kv_heads must be .* got 0"),
    (lambda rng: nn.SelfAttention.init(rng, 8, 2.0), r"num_heads must be .* got 2\.0"),
    (lambda rng: nn.SelfAttention.init(rng, 0, 1), r"embed_dim must be .* got 0"),
    (lambda rng: nn.FeedForward.init(rng, 0), r"embed_dim must be .* got 0"),
    (lambda rng: nn.Embedding.init(rng, 5, 0), r"embed_dim must be .* got 0"),
    (lambda rng: nn.Linear.init(rng, 0, 0), r"in_dim must be .* got 0"),
    (lambda rng: nn.Linear.init(rng, 2, -3), r"out_dim must be .* got -3"),
    (lambda rng: nn.Linear.init(rng, True, 2), r"in_dim must be .* got True"),
    (lambda rng: nn.Linear.init(rng, 3, 3, dtype=int), r"floating type .* got int64"),
    (lambda rng: nn.Linear.init(rng, 3, 3, dtype="float31"), r"floating type .* got 'float31'"),
    (lambda rng: nn.Embedding.init(rng, 5, 3)([[1], [1, 2]]), r"ids is not a rectangular array"),
    (lambda rng: nn.SelfAttention.init(rng, 8, 2)(np.ones(8)), r"x \(8,\) needs at least 2 axes"),
    (lambda rng: nn.SelfAttention(128, 4, 4), r"SelfAttention\.init\(rng, embed_dim, num_heads\)"),
    (lambda rng: nn.Linear(128), r"Linear\.init\(rng, in_dim, out_dim\)"),
    (lambda rng: nn.LayerNorm(5, 5), r"LayerNorm\.init"),
    (lambda rng: nn.Embedding(5), r"Embedding\.init"),
    (lambda rng: nn.SelfAttention.init(rng, 128, 5), r"128 does not split into 5 heads.*head_dim"),
    (lambda rng: nn.SelfAttention.init(rng, 12, 4, num_kv_heads=3), r"do not split into key/value heads"),
    (
        lambda rng: nn.SelfAttention.from_weights(*[np.ones((3, 4, 2))] * 3, num_heads=2),
        r"3 heads, but num_heads=2",
    ),
    (lambda rng: nn.SelfAttention.from_weights(*[np.ones((4, 6))] * 3, np.ones((5, 4))), r"o_proj \(5, 4\)"),
    (lambda rng: nn.Embedding.init(rng, 5, 3)(np.array([5])), r"id 5 is outside .* 0 to 4"),
    (lambda rng: nn.Embedding.init(rng, 5, 3)(np.array([-1])), r"id -1 is outside"),
    (lambda rng: nn.Embedding.init(rng, 5, 3)(np.array([0.5])), r"ids must be integers"),
    (lambda rng: nn.FeedForward.init(rng, 4, activation="mish"), r"unknown activation"),
    (lambda rng: nn.RMSNorm(5), r"an RMSNorm is made from its weight, .*RMSNorm\.init\(dim\)"),
    (lambda rng: nn.RMSNorm(np.ones((2, 2))), r"an array \(features,\), got an array \(2, 2\)"),
    (lambda rng: nn.RMSNorm.init(3, eps=-1), r"eps must be a finite number of at least 0, got -1"),
    (lambda rng: nn.RMSNorm.init(0), r"embed_dim must be .* got 0"),
    (
        lambda rng: nn.GatedFeedForward(8, 9),
        r"made from three Linear maps, got 8, 9, None; .*GatedFeedForward\.init",
    ),
    (lambda rng: nn.GatedFeedForward.init(rng, 3, 5, activation="mish"), r"unknown activation 'mish'"),
    (lambda rng: nn.GatedFeedForward(*[nn.Linear.init(rng, 3, 5)] * 3), r"gate_proj \(3, 5\), .* do not join"),
    (lambda rng: nn.CausalAttention(8, 2), r"CausalAttention\.init\(rng, embed_dim, num_heads\)"),
    (lambda rng: nn.DecoderBlock(8), r"made from a norm, a CausalAttention, a norm .*, got int, NoneType"),
    (
        lambda rng: nn.DecoderBlock(nn.RMSNorm.init(12), nn.SelfAttention.init(rng, 12), nn.RMSNorm.init(12), print),
        r"got RMSNorm, SelfAttention, RMSNorm",
    ),
    *(
        (lambda rng, shapes=shapes: nn.SelfAttention.from_weights(*map(np.ones, shapes)), said)
        for shapes, said in HEADS
    ),
]


@pytest.mark.parametrize(("make", "said"), MISTAKES, ids=[f"{i}-{said!a}" for i, (_, said) in enumerate(MISTAKES)])
def test_a_mistake_says_what_to_do(rng, make, said):
    block()
    with pytest.raises(RegardError, match=said):
        make(rng)
