"""FlashAttention's own tests, ``tests/test_flash_attn.py``, on a package ``flash_attn`` that is made here.

Its functions compute with regard, on the CPU: the tests name a device, which is changed in their text. Each test's
product of parameters is covered pair by pair; what `left_out` names is not a part of it. ``$REGARD_FLASH_ATTENTION`` is
the folder of the source distribution.
"""

import os
import random
import sys
import types
from pathlib import Path

import pytest
import torch

import regard
from regard.functional import apply_rotary
from sweeps import pairwise_cover

FOLDER = Path(os.environ["REGARD_FLASH_ATTENTION"])
LARGEST = 2**17  # scores of a head: with more, the reference takes seconds on two cores
DRAWN = 4000  # cases of a function, of which some cover all pairs


def swapped(x):
    return x.transpose(1, 2)  # B T H D to B H T D, and back


def window_of(sizes):
    return tuple(None if size < 0 else int(size) for size in sizes)


def in_a_row(x):
    """Return a batch of texts of one length as `attention_varlen` takes it, and where each begins."""
    return x.flatten(0, 1), torch.arange(x.shape[0] + 1, dtype=torch.int32) * x.shape[1]


def flash_attn_func(
    q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
    deterministic=False, return_attn_probs=False,
):  # fmt: skip
    assert not dropout_p
    if alibi_slopes is None:
        window = None if tuple(window_size) == (-1, -1) else window_of(window_size)
        options = {"scale": softmax_scale, "causal": causal, "window": window, "softcap": softcap or None}
        output = swapped(regard.attention(*(swapped(x) for x in (q, k, v)), **options))
    else:
        (queries, starts_q), (keys, starts_k), (values, _) = (in_a_row(x) for x in (q, k, v))
        output = regard.attention_varlen(
            queries, keys, values, starts_q, starts_k, softmax_scale=softmax_scale, causal=causal,
            window_size=window_of(window_size), softcap=softcap, alibi_slopes=alibi_slopes,
        ).unflatten(0, q.shape[:2])  # fmt: skip
    return (output, None, None) if return_attn_probs else output


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None, causal=False,
    window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False, return_attn_probs=False,
    block_table=None,
):  # fmt: skip
    output = regard.attention_varlen(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal,
        window_of(window_size), softcap, alibi_slopes, block_table=block_table,
    )  # fmt: skip
    return (output, None, None) if return_attn_probs else output


def flash_attn_with_kvcache(
    q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, cache_batch_idx=None,
    cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
    rotary_interleaved=True, alibi_slopes=None, num_splits=0,
):  # fmt: skip
    """Rotate the queries and the new keys, write those into the cache, and attend to what it then holds."""
    batch, queries = q.shape[:2]
    window, in_order = window_of(window_size), causal or tuple(window_size) != (-1, -1)
    if rotary_cos is not None:
        at = cache_seqlens[:, None].long() + torch.arange(queries if in_order else 1)
        q = rotated(q, rotary_cos[at], rotary_sin[at], rotary_interleaved)
    lengths = cache_seqlens
    if k is not None:
        at = cache_seqlens[:, None].long() + torch.arange(k.shape[1])
        if rotary_cos is not None:
            k = rotated(k, rotary_cos[at], rotary_sin[at], rotary_interleaved)
        for cache, new in ((k_cache, k), (v_cache, v)):
            if block_table is None:
                cache[torch.arange(batch)[:, None], at] = new
            else:
                page = block_table.long().gather(1, at // cache.shape[1])
                cache[page, at % cache.shape[1]] = new
        lengths = cache_seqlens + k.shape[1]
    if block_table is None and alibi_slopes is None:
        mask = None
        if cache_leftpad is not None:
            mask = (torch.arange(k_cache.shape[1]) >= cache_leftpad[:, None])[:, None, None]
        return swapped(
            regard.attention(
                *(swapped(x) for x in (q, k_cache, v_cache)), mask=mask, scale=softmax_scale, causal=causal,
                window=window, key_lengths=lengths, query_offset=lengths - queries,
            )
        )  # fmt: skip
    if block_table is None:  # the keys that are written and no padding, text after text
        first = torch.zeros_like(lengths) if cache_leftpad is None else cache_leftpad
        at = torch.arange(k_cache.shape[1])
        kept = (at >= first[:, None]) & (at < lengths[:, None])
        k_cache, v_cache, lengths = k_cache[kept], v_cache[kept], lengths - first
    ends = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    output = regard.attention_varlen(
        in_a_row(q)[0], k_cache, v_cache, in_a_row(q)[1], ends, softmax_scale=softmax_scale, causal=causal,
        window_size=window, alibi_slopes=alibi_slopes, block_table=block_table,
    )  # fmt: skip
    return output.unflatten(0, (batch, queries))


def rotated(x, cos, sin, interleaved):
    return swapped(apply_rotary(swapped(x), cos[:, None], sin[:, None], interleaved=interleaved))


def module(name, **contents):
    made = sys.modules[name] = types.ModuleType(name)
    vars(made).update(contents)
    return made


def own_tests():
    """Return the module of FlashAttention's tests, for the package that is made here and for the CPU."""

    def qkv_packed(qkv, *others, **options):
        return flash_attn_func(*qkv.unbind(-3), *others, **options)

    def kv_packed(q, kv, *others, **options):
        return flash_attn_func(q, *kv.unbind(-3), *others, **options)

    def kv_packed_in_a_row(q, kv, *others, **options):
        return flash_attn_varlen_func(q, *kv.unbind(-3), *others, **options)

    def qkv_packed_in_a_row(qkv, starts, longest, *others, **options):
        return flash_attn_varlen_func(*qkv.unbind(-3), starts, starts, longest, longest, *others, **options)

    package = module(
        "flash_attn",
        flash_attn_func=flash_attn_func,
        flash_attn_kvpacked_func=kv_packed,
        flash_attn_qkvpacked_func=qkv_packed,
        flash_attn_varlen_func=flash_attn_varlen_func,
        flash_attn_varlen_kvpacked_func=kv_packed_in_a_row,
        flash_attn_varlen_qkvpacked_func=qkv_packed_in_a_row,
        flash_attn_with_kvcache=flash_attn_with_kvcache,
    )
    package.__path__ = [str(FOLDER / "flash_attn")]
    module("flash_attn.flash_attn_interface", _get_block_size_n=None)  # of the masks of dropout
    for name in ("flash_attn.ops", "flash_attn.ops.triton"):
        module(name).__path__ = []
    module("flash_attn.ops.triton.rotary", apply_rotary=None)  # on a GPU
    from flash_attn.layers import rotary

    def apply_rotary_emb(x, cos, sin, seqlen_offsets, interleaved):
        at = seqlen_offsets[:, None].long() + torch.arange(x.shape[1])
        return rotary.apply_rotary_emb_torch(x, cos[at], sin[at], interleaved)

    rotary.apply_rotary_emb = apply_rotary_emb
    text = (FOLDER / "tests" / "test_flash_attn.py").read_text(encoding="utf-8")
    text = text.replace('torch.cuda.get_device_capability("cuda")', "(8, 0)").replace('"cuda"', '"cpu"')
    text = text.replace('torch.cuda.get_device_properties("cpu").total_memory', "0")
    made = module("flash_attention_tests")
    exec(compile(text, str(FOLDER / "tests" / "test_flash_attn.py"), "exec"), vars(made))
    return made


AGAIN = "repeats each call many times; regard's bits have tests of their own, tests/functional/native/test_threads.py"
LEFT_OUT = {
    "test_flash_attn_deterministic": AGAIN,
    "test_flash_attn_varlen_deterministic": AGAIN,
    "test_flash_attn_race_condition": AGAIN,
}


def left_out(case):
    """Tell whether a case is left out: what regard does not have, what takes too long, and what the tests skip."""
    queries, keys = (case.get(f"seqlen_{name}", case.get("seqlen", 1)) for name in "qk")
    return (
        bool(case.get("dropout_p"))  # the dropped weights come out of FlashAttention's kernel
        or case.get("deterministic") is True  # chooses between kernels of FlashAttention
        or case.get("num_splits") == 0  # likewise
        or (queries * keys > LARGEST or keys > 2048 or case.get("d", 0) > 128)  # too long
        or bool(case.get("rotary_fraction") and not case["new_kv"])  # skipped, as the next one
        or bool(case.get("has_leftpad") and case["paged_kv_block_size"])
    )


def cases_of(function):
    """Return names and cases of a function: every pair of values of its parameters that are not left out.

    They are found among as many cases as are quick to search, drawn from the product, which is too long.
    """
    marks = [mark for mark in function.pytestmark if mark.name == "parametrize"]
    names = [name.strip() for mark in marks for name in mark.args[0].split(",")]
    draw, cases = random.Random(0), {}
    for _ in range(DRAWN):
        drawn = [draw.choice(mark.args[1]) for mark in marks]
        values = [y for mark, x in zip(marks, drawn, strict=True) for y in (x if "," in mark.args[0] else (x,))]
        case = dict(zip(names, values, strict=True))
        if not left_out(case):
            cases[str(case)] = case
    cases = [cases[key] for key in sorted(cases)]
    return names, [list(cases[number].values()) for number in sorted(pairwise_cover(cases))]


def parametrized(function):
    names, cases = cases_of(function)
    function.pytestmark = []
    return pytest.mark.parametrize(names, cases)(function)


TESTS = {name: x for name, x in vars(own_tests()).items() if name.startswith("test_")}
globals().update({name: parametrized(x) for name, x in TESTS.items() if name not in LEFT_OUT})
