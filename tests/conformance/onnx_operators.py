"""The operators of ONNX in the words of regard: each input and attribute becomes an argument, nothing is computed here.

The functions take what a node has, by the names that the standard gives them, and return its outputs by name.
"""

import numpy as np

from regard import Trace, attention, attention_weights, linear_attention
from regard.functional import apply_rotary, merge_heads, split_heads

STAGES = ("scores", "capped", "biased", "weights")  # by qk_matmul_output_mode


def attention_operator(inputs, attributes, implementation="auto"):
    """Return Y, present_key, present_value and qk_matmul_output."""
    q, k, v = inputs["Q"], inputs["K"], inputs["V"]
    flat = q.ndim == 3
    if flat:
        q = split_heads(q, attributes["q_num_heads"])
        k, v = (split_heads(x, attributes["kv_num_heads"]) for x in (k, v))
    offset, valid = 0, inputs.get("nonpad_kv_seqlen")
    if "past_key" in inputs:
        offset = inputs["past_key"].shape[-2]
        k, v = (np.concatenate([inputs[past], x], axis=-2) for past, x in (("past_key", k), ("past_value", v)))
    elif valid is not None:
        offset = valid - q.shape[-2]

    options = {}
    if "scale" in attributes:
        options["scale"] = attributes["scale"]
    if attributes.get("softcap"):
        options["softcap"] = attributes["softcap"]
    if valid is not None:
        options["key_lengths"] = valid
    if attributes.get("is_causal"):
        options["causal"] = True
    window = tuple(attributes.get(side, -1) for side in ("left_window_size", "right_window_size"))
    if window != (-1, -1):
        options["window"] = tuple(None if count == -1 else count for count in window)
    if options.keys() & {"causal", "window"}:
        options["query_offset"] = offset
    if "attn_mask" in inputs:
        given = inputs["attn_mask"]
        boolean = given.dtype == bool
        missing = [(0, 0)] * (given.ndim - 1) + [(0, k.shape[-2] - given.shape[-1])]
        if missing[-1][1] and given.shape[-1] != 1:
            given = np.pad(given, missing, constant_values=False if boolean else -np.inf)
        options["mask" if boolean else "bias"] = given

    y = attention(q, k, v, **options, implementation=implementation)
    stage = STAGES[attributes.get("qk_matmul_output_mode", 0)]
    return {
        "Y": merge_heads(y) if flat else y,
        "present_key": k,
        "present_value": v,
        "qk_matmul_output": attention_weights(q, k, **options, stage=stage),
    }


def rotary_operator(inputs, attributes):
    """Return the output of RotaryEmbedding."""
    x, cos, sin = inputs["input"], inputs["cos_cache"], inputs["sin_cache"]
    if "position_ids" in inputs:
        cos, sin = cos[inputs["position_ids"]], sin[inputs["position_ids"]]  # B T R/2
    flat = x.ndim == 3
    if flat:
        x = split_heads(x, attributes["num_heads"])
    y = apply_rotary(x, cos[:, None], sin[:, None], interleaved=bool(attributes.get("interleaved")))
    return {"output": merge_heads(y) if flat else y}


def linear_attention_operator(inputs, attributes):
    """Return output and present_state of LinearAttention; `attributes` are as the standard gives them."""
    groups = attributes["kv_num_heads"]
    q = split_heads(inputs["query"], attributes["q_num_heads"])
    k, v = (split_heads(inputs[name], groups) for name in ("key", "value"))
    options = {"state": inputs.get("past_state"), "scale": attributes.get("scale") or None}
    if "decay" in inputs:
        options["decay"] = split_heads(inputs["decay"], groups)
    if "beta" in inputs:
        options["beta"] = np.swapaxes(inputs["beta"], -1, -2)
    output, state = linear_attention(q, k, v, **options)
    dtype = inputs.get("past_state", q).dtype  # a state of regard stays in float32
    return {"output": merge_heads(output), "present_state": state.astype(dtype)}


def flex_attention_operator(inputs, attributes):
    """Return Y of FlexAttention; its functions are graphs, that of the weights an edit of this step."""
    options = {"scale": attributes["scale"]} if "scale" in attributes else {}
    if "score_mod" in attributes:
        score_mod = evaluated(attributes["score_mod"])
        options["bias"] = lambda score, *_: score_mod(score)
    if "prob_mod" in attributes:
        options["trace"] = Trace(only=[], edit={"weights": evaluated(attributes["prob_mod"])})
    return {"Y": attention(*(inputs[name] for name in "QKV"), **options)}


def evaluated(graph):
    """Return the function of one array that a graph is."""
    from onnx.helper import make_model, make_opsetid
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(make_model(graph, opset_imports=[make_opsetid("", 23)]))
    return lambda x: evaluator.run(None, {graph.input[0].name: x})[0]
