"""Write a Llama 3.1 8B in Q4_0 with random weights: 4.5 GB, of which one tensor is held in memory at a time.

Its speed and memory are those of the published model, its texts are noise. A token is up to three letters, so that any
text has some.

    python benchmarks/random_llama.py FILE.gguf
"""

from __future__ import annotations

import itertools
import sys

import gguf
import numpy as np

LAYERS, E, F, HEADS, KV_HEADS, D, VOCABULARY = 32, 4096, 14336, 32, 8, 128, 128_256
KIND = gguf.GGMLQuantizationType.Q4_0
SCALE = np.array([0.003], np.float16).view(np.uint8)  # of each block; its numbers are -8 to 7

_BYTES = [*range(33, 127), *range(161, 173), *range(174, 256)]
LETTERS = [*map(chr, _BYTES), *(chr(256 + i) for i in range(256 - len(_BYTES)))]  # as byte-level BPE spells bytes
SHAPES = {"token_embd": (VOCABULARY, E), "output": (VOCABULARY, E)} | {
    f"blk.{i}.{name}": shape
    for i in range(LAYERS)
    for name, shape in {
        "attn_q": (HEADS * D, E),
        "attn_k": (KV_HEADS * D, E),
        "attn_v": (KV_HEADS * D, E),
        "attn_output": (E, HEADS * D),
        "ffn_gate": (F, E),
        "ffn_up": (F, E),
        "ffn_down": (E, F),
    }.items()
}
NORMS = ["output_norm", *(f"blk.{i}.{name}_norm" for i in range(LAYERS) for name in ("attn", "ffn"))]


def random_blocks(rows: int, columns: int, rng: np.random.Generator) -> np.ndarray:
    """Return a matrix of random numbers as Q4_0 stores it, ``rows · columns / 32, 18`` bytes."""
    blocks = np.frombuffer(rng.bytes(rows * columns // 32 * 18), np.uint8).reshape(-1, 18).copy()
    blocks[:, :2] = SCALE
    return blocks


def add_metadata(writer: gguf.GGUFWriter) -> None:
    """Write the configuration, and a tokenizer of as many tokens."""
    writer.add_block_count(LAYERS)
    writer.add_context_length(131_072)
    writer.add_embedding_length(E)
    writer.add_feed_forward_length(F)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500_000.0)
    writer.add_rope_dimension_count(D)
    writer.add_vocab_size(VOCABULARY)
    pairs = list(itertools.product(LETTERS, LETTERS))
    parts = itertools.chain(pairs, itertools.product(map("".join, pairs), LETTERS))
    merges = list(itertools.islice(parts, VOCABULARY - len(LETTERS) - 1))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list([*LETTERS, *map("".join, merges), "<|end|>"])
    writer.add_token_types([1] * (VOCABULARY - 1) + [3])
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(VOCABULARY - 1)
    writer.add_eos_token_id(VOCABULARY - 1)
    writer.add_add_bos_token(False)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(str(__doc__))
    writer = gguf.GGUFWriter(sys.argv[1], "llama")
    add_metadata(writer)
    for name, (rows, columns) in SHAPES.items():
        stored = (rows, columns // 32 * 18)
        writer.add_tensor_info(f"{name}.weight", stored, np.dtype(np.uint8), rows * stored[1], raw_dtype=KIND)
    for name in NORMS:
        writer.add_tensor_info(f"{name}.weight", (E,), np.dtype(np.float32), 4 * E)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    rng = np.random.default_rng(0)
    for shape in SHAPES.values():
        writer.write_tensor_data(random_blocks(*shape, rng))
    for _ in NORMS:
        writer.write_tensor_data(np.ones(E, np.float32))
    writer.close()


if __name__ == "__main__":
    main()
