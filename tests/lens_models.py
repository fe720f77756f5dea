"""Tiny random models in TransformerLens and in regard, for `tests/lens`."""

import numpy as np
import torch
import transformers
from transformer_lens.model_bridge import TransformerBridge

import make_golden
import regard

TOLERANCE = 1e-5  # of the largest, float32
IDS = [5, 9, 4, 9, 11, 6, 5]
TOKEN, VERSUS = 7, 3


def tiny_pair(family, folder):
    """Return a tiny model with random numbers in TransformerLens, twice, and in regard, and a run of that."""
    kind = make_golden.CASES[family]
    config = getattr(transformers, kind.config)(**kind.sizes | next(iter(kind.cases.values())))
    config._attn_implementation = "eager"
    peer = make_golden.drawn(getattr(transformers, kind.model)(config).eval(), 0).float()
    peer.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    make_golden.write_tokenizer(folder, config)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), pad_token="<pad>", bos_token="<pad>", eos_token="<pad>"
    )
    tokenizer.save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def bridge():
        theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
        return TransformerBridge.boot_transformers(str(folder), hf_model=theirs, tokenizer=tokenizer)

    plain, folded = bridge(), bridge()
    folded.enable_compatibility_mode(
        fold_ln=True, center_writing_weights=False, center_unembed=False, fold_value_biases=False
    )
    model, trace = regard.load(folder), regard.Trace()
    model(np.array(IDS), trace=trace)
    return plain, folded, model, trace


def cached(bridge):
    with torch.no_grad():
        return bridge.run_with_cache(torch.tensor([IDS]))


def assert_close(ours, theirs):
    theirs = np.asarray(theirs.detach() if hasattr(theirs, "detach") else theirs)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE * max(np.abs(theirs).max(), 1e-3))
