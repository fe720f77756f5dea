"""A researcher's runs beside TransformerLens and plain hooks of transformers: forward, everything recorded, ablations.

Each contestant is a process of its own with as many threads, with the same weights in float32; they take turns, and the
result is the ratio of a round. What is recorded are arrays, those of attention too. Runs that differ in one place are
batched, in all contestants: the heads of a layer, the positions of a layer, prompts. The models: SmolLM2-135M, and one
of the shape of Pythia-70M with random weights.

    python benchmarks/research.py            the tables in benchmarks/results/research.md
    python benchmarks/research.py --smoke    one round of a tiny model, nothing written
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _measure import (
    Times,
    alternate_processes,
    answer,
    faster,
    kernel_in_words,
    machine,
    markdown,
    versions,
    write_results,
)

THREADS = 2
FOLDERS = "RESEARCH_MODELS"  # names the folder of the models
SHORT, LONG, PROMPTS, BATCH = 14, 256, 100, 20
REST = 0.3  # seconds; threads of PyTorch spin after a call
SECONDS = 1.0  # that a call is repeated: the first pays for memory that the system has taken since the last turn
ROUNDS = 6  # of nearly two minutes; each is a median of calls, where they are shorter than SECONDS
CALLS = {
    "forward": f"forward, {SHORT} tokens",
    "short": f"everything recorded, {SHORT} tokens",
    "long": f"everything recorded, {LONG} tokens",
    "ablations": "each head ablated once, with the loss",
    "grid": f"each layer's output patched at each of {SHORT} positions",
    "prompts": f"{PROMPTS} prompts of {SHORT} tokens, recorded, {BATCH} at a time",
}

Calls = dict[str, Callable[[], object]]


def ids_of(length: int, seed: int = 0, *, count: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(100, 500, (count, length))


def each_batch(record: Callable[..., object]) -> None:
    for seed in range(PROMPTS // BATCH):
        record(SHORT, seed, count=BATCH)


def regard_calls(folder: str) -> Calls:
    import regard
    from regard.metrics import patch_grid

    regard.set_num_threads(THREADS)
    model: Any = regard.load(folder)
    layers, heads = len(model.blocks), model.blocks[0].attn.num_heads

    def forward() -> object:
        return model(ids_of(SHORT)).logits

    def record(length: int, seed: int = 0, count: int = 1) -> object:
        trace = regard.Trace()
        return model(ids_of(length, seed, count=count), trace=trace).logits, trace

    def cut(context: np.ndarray) -> np.ndarray:
        context[range(heads), range(heads)] = 0  # of each text of the batch another head
        return context

    def ablations() -> list[np.ndarray]:
        before = regard.Trace(only="blocks.*.output")
        model(ids_of(SHORT), trace=before)
        losses = []
        for layer in range(layers):
            start = {f"blocks.{layer - 1}.output": before[f"blocks.{layer - 1}.output"]} if layer else None
            trace = regard.Trace(only=(), edit={f"blocks.{layer}.attn.context": cut}, start=start)
            losses.append(model(ids_of(SHORT).repeat(heads, 0), trace=trace).token_losses().mean(-1))
        return losses

    clean, corrupted = (model.tokenizer.from_ids(ids_of(SHORT, seed)[0].tolist()) for seed in (0, 1))
    return {
        "forward": forward,
        "short": partial(record, SHORT),
        "long": partial(record, LONG),
        "ablations": ablations,
        "grid": lambda: patch_grid(model, clean, corrupted, (100, 101)).values,
        "prompts": lambda: each_batch(record),
    }


def peer(folder: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(THREADS)
    torch.inference_mode().__enter__()  # for the whole process
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def losses_of(logits: Any, ids: Any) -> Any:
    import torch

    return torch.nn.functional.cross_entropy(logits[:, :-1].mT, ids[:, 1:], reduction="none").mean(-1)


def collect_at(layer: int) -> None:
    """Free what TransformerLens leaves in cycles, now and then: the runs of 30 layers would leave 10 GB."""
    if layer % 5 == 0:
        gc.collect()
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


def lens_calls(folder: str) -> Calls:
    import torch
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import AutoTokenizer

    model = TransformerBridge.boot_transformers(
        folder, hf_model=peer(folder), tokenizer=AutoTokenizer.from_pretrained(folder)
    )
    layers, heads = model.cfg.n_layers, model.cfg.n_heads

    def record(length: int, seed: int = 0, count: int = 1) -> object:
        return model.run_with_cache(torch.from_numpy(ids_of(length, seed, count=count)))

    def cut(context: Any, hook: Any) -> Any:  # noqa: ARG001
        context[range(heads), :, range(heads)] = 0
        return context

    def ablations() -> list[Any]:
        ids = torch.from_numpy(ids_of(SHORT)).repeat(heads, 1)
        found = []
        for layer in range(layers):
            collect_at(layer)
            logits = model.run_with_hooks(ids, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", cut)])
            found.append(losses_of(logits, ids))
        return found

    def grid() -> list[Any]:
        _, cache = model.run_with_cache(torch.from_numpy(ids_of(SHORT, 0)))
        ids = torch.from_numpy(ids_of(SHORT, 1)).repeat(SHORT, 1)

        def patch(stream: Any, hook: Any) -> Any:
            stream[range(SHORT), range(SHORT)] = cache[hook.name][0]
            return stream

        found = []
        for layer in range(layers):
            collect_at(layer)
            logits = model.run_with_hooks(ids, fwd_hooks=[(f"blocks.{layer}.hook_resid_post", patch)])
            found.append(logits[:, -1, 100] - logits[:, -1, 101])
        return found

    return {
        "grid": grid,
        "forward": lambda: model(torch.from_numpy(ids_of(SHORT))),
        "short": partial(record, SHORT),
        "long": partial(record, LONG),
        "ablations": ablations,
        "prompts": lambda: each_batch(record),
    }


def hooks_calls(folder: str) -> Calls:
    """Return the calls with hooks on all modules and the weights that transformers returns itself."""
    import torch

    model = peer(folder)
    heads = model.config.num_attention_heads
    projections = [module for name, module in model.named_modules() if name.endswith(("o_proj", "attention.dense"))]

    def record(length: int, seed: int = 0, count: int = 1) -> object:
        seen: dict[str, Any] = {}

        def hook(name: str, _: Any, __: Any, output: Any) -> None:
            seen[name] = output

        handles = [module.register_forward_hook(partial(hook, name)) for name, module in model.named_modules()]
        ids = torch.from_numpy(ids_of(length, seed, count=count))
        output = model(ids, output_attentions=True, use_cache=False)
        for handle in handles:
            handle.remove()
        return output, seen

    def cut(_: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        context = arguments[0].clone()
        context.unflatten(-1, (heads, -1))[range(heads), :, range(heads)] = 0
        return (context, *arguments[1:])

    def ablated(projection: Any) -> Any:
        handle, ids = projection.register_forward_pre_hook(cut), torch.from_numpy(ids_of(SHORT)).repeat(heads, 1)
        logits = model(ids, use_cache=False).logits
        handle.remove()
        return losses_of(logits, ids)

    def grid() -> list[Any]:
        blocks = next(module for name, module in model.named_modules() if name.endswith("layers"))
        clean = model(torch.from_numpy(ids_of(SHORT, 0)), use_cache=False, output_hidden_states=True).hidden_states
        ids, found = torch.from_numpy(ids_of(SHORT, 1)).repeat(SHORT, 1), []
        for layer, block in enumerate(blocks):

            def patch(_: Any, __: Any, output: Any, layer: int = layer) -> Any:
                stream = (output if torch.is_tensor(output) else output[0]).clone()
                stream[range(SHORT), range(SHORT)] = clean[layer + 1][0]
                return stream if torch.is_tensor(output) else (stream, *output[1:])

            handle = block.register_forward_hook(patch)
            logits = model(ids, use_cache=False, logits_to_keep=1).logits
            handle.remove()
            found.append(logits[:, -1, 100] - logits[:, -1, 101])
        return found

    return {
        "grid": grid,
        "forward": lambda: model(torch.from_numpy(ids_of(SHORT)), use_cache=False),
        "short": partial(record, SHORT),
        "long": partial(record, LONG),
        "ablations": lambda: [ablated(projection) for projection in projections],
        "prompts": lambda: each_batch(record),
    }


RUNS: dict[str, Callable[[str], Calls]] = {
    "regard": regard_calls,
    "TransformerLens": lens_calls,
    "hooks": hooks_calls,
}


def write_models(folder: Path, smoke: bool) -> list[str]:
    """Write the models in float32 as transformers stores them, and return their names."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import (
        AutoModelForCausalLM,
        GPTNeoXConfig,
        GPTNeoXForCausalLM,
        PreTrainedTokenizerFast,
    )

    from regard.models.hub import resolve

    def save(name: str, model: Any) -> str:
        model.save_pretrained(folder / name)
        (folder / name / "generation_config.json").unlink(missing_ok=True)
        words = {"<pad>": 0} | {f"w{i}": i for i in range(1, model.config.vocab_size)}
        tokenizer = Tokenizer(WordLevel(words, unk_token="<pad>"))
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<pad>", eos_token="<pad>"
        ).save_pretrained(folder / name)
        return name

    torch.manual_seed(0)
    sizes = {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2} if smoke else {
        "vocab_size": 50_304, "hidden_size": 512, "intermediate_size": 2_048, "num_hidden_layers": 6
    }  # fmt: skip
    config = GPTNeoXConfig(
        **sizes, num_attention_heads=8, max_position_embeddings=2_048, bos_token_id=0, eos_token_id=0
    )
    found = [save("pythia-70m-shaped", GPTNeoXForCausalLM(config))]
    if smoke:
        return found
    file = resolve.find("smollm2")
    stored = AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name, dtype=torch.float32)
    if hasattr(stored.config, "quantization_config"):  # the weights are widened; transformers would not save them
        del stored.config.quantization_config
    smollm2 = AutoModelForCausalLM.from_config(stored.config)
    smollm2.load_state_dict(stored.state_dict())
    return [save("smollm2", smollm2), *found]


def table(times: dict[str, dict[str, Times]]) -> str:
    rows = []
    for call, words in CALLS.items():
        ours = times["regard"][call]
        row = [words, *(str(measured[call]) for measured in times.values())]
        rows.append([*row, *(str(faster(ours, times[name][call])) for name in times if name != "regard")])
    names = list(times)
    return markdown(["", *names, *(f"{name} ÷ regard" for name in names[1:])], rows)


def products_alone(folder: Path) -> str:
    """Return how long the matrix products of the longer run take at the peak of the machine, as a sentence."""
    import regard
    from regard.functional import native
    from regard.nn.layer import parameters

    kernel = native.kernel()
    if kernel is None:
        return ""
    regard.set_num_threads(THREADS)
    model: Any = regard.load(folder)
    count = sum(x.size for x in parameters(model).values() if x.ndim == 2)
    if model.lm_head is not None:  # else the table of embeddings is the head
        count -= model.token_embedding.weight.size
    seconds = LONG * count / kernel.fma_peak()
    return (
        f"The matrix products of {LONG} tokens alone, {LONG * count / 1e9:.1f} thousand million multiply-adds, "
        f"would take {1e3 * seconds:.0f} ms at the peak measured here."
    )


def scheduling() -> str:
    """Return how the processes were scheduled, as a sentence."""
    real_time = hasattr(os, "SCHED_RR") and os.sched_getscheduler(0) == os.SCHED_RR
    return (
        " The processes had real-time priority (`chrt --rr 1`), beside other work on the machine." if real_time else ""
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="one round of a tiny model; writes nothing")
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--work", choices=RUNS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        calls = RUNS[arguments.work](str(Path(os.environ[FOLDERS], arguments.model)))
        for call in ("forward", "short", "long"):  # weights are packed, memory is there
            calls[call]()
        return answer(calls, SECONDS, warm_up=False)
    sections = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {FOLDERS: folder, "HF_HUB_OFFLINE": "1"}
        for name in write_models(Path(folder), arguments.smoke):
            times = alternate_processes(
                __file__,
                tuple(RUNS),
                list(CALLS),
                rounds=1 if arguments.smoke else ROUNDS,
                threads=THREADS,
                rest=REST,
                options=["--model", name],
            )
            sections += [f"## {name}", table(times), products_alone(Path(folder, name))]
    page = "\n\n".join([
        "# A researcher's runs",
        f"{machine()}; {THREADS} threads each; {date.today().isoformat()}. "
        f"{versions('numpy', 'torch', 'transformers', 'transformer-lens')}. {kernel_in_words()}. Medians of {ROUNDS} "
        f"rounds that alternate, in brackets their quartiles.{scheduling()} Made by `nox -s bench`.",
        "Weights in float32, the same for all (SmolLM2's widened from its file); PyTorch in `inference_mode`. What is "
        "recorded are arrays, those of attention too, and logits of all positions: by regard every step of a "
        "`Trace()`, with scores before and after the mask; by TransformerLens what `run_with_cache` keeps; by hooks on "
        "every module of transformers with eager attention their outputs and the weights. At 256 tokens of SmolLM2 "
        "these are 524, 548 and 382 MB. The heads of a layer are ablated together, a text of a batch for each, and so "
        "are the positions of a layer patched and prompts recorded; regard starts such a run at the layer that changes "
        "(`start=`).",
        *sections,
    ])  # fmt: skip
    print(page)
    if not arguments.smoke:
        write_results("research.md", page)
    return None


if __name__ == "__main__":
    main()
