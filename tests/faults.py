"""Planted faults: small mistakes, each of which has to turn the guard red.

``python tests/faults.py`` copies the files of the repository, plants one mistake after the other in the copy and runs
the tests that are to notice it there; if these pass, the whole suite, and then that of peers and of the browser. What
no test notices is printed, and the exit status is 1. `nox -s mutants` runs it in the night.

The mistakes are such as a change makes by chance: a bound off by one, an argument that is not passed on, a default, a
sign, the last part of a loop. A fault that needs another text after a change of its file says so when the script runs.
"""

import argparse
import filecmp
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".nox" / "faults"  # kept, so that the kernel is built whole only once
TREE, OBJECTS, WHEELS = FOLDER / "tree", FOLDER / "objects", FOLDER / "wheels"
NATIVE = "src/regard/functional/native"

# If the named tests pass. The second needs packages and a browser; without these it is left out.
WHOLE: tuple[tuple[str, ...], ...] = ((), ("tests/parity", "tests/browser"))
TIME_LIMIT = 1800  # seconds of one run of tests; a fault may make them wait for ever


class Fault(NamedTuple):
    """A mistake of one line, and the tests that are to notice it first."""

    file: str
    old: str  # occurs once in the file
    new: str
    tests: str  # files and folders in tests/


def faults_of(file: str, tests: str, mistakes: dict[str, str]) -> list[Fault]:
    """Return the mistakes of a file, each old text with the new one, that these tests are to notice first."""
    return [Fault(file, old, new, tests) for old, new in mistakes.items()]


FAULTS = (
    # Why a token attends to another.
    *faults_of("src/regard/metrics/replay.py", "metrics/test_score_attribution.py", {
        "head * count // attn.num_heads, count)": "head % count, count)",
        "trace=_Routing(alone)) - nobody": "trace=_Routing(alone))",
    }),
    *faults_of("src/regard/metrics/attended_cell.py", "metrics/test_score_attribution.py", {
        "stacked[1], stacked[2:] - stacked[1]": "stacked[1], stacked[2:]",
    }),
    *faults_of("src/regard/metrics/score_attribution.py", "metrics/test_score_attribution.py", {
        "abs(self.scale) >= least": "abs(self.scale) > 2 * least",
    }),
    # Attention in NumPy.
    *faults_of("src/regard/functional/masks/structured.py", "functional/test_masks.py functional/test_attention.py", {
        "cols.start > last + self.right": "cols.start >= last + self.right",
    }),
    *faults_of("src/regard/functional/masks/base.py", "functional/test_masks.py", {
        "np.minimum(last, other_last)) & ~empty": "np.minimum(last, other_last) + 1) & ~empty",
    }),
    *faults_of("src/regard/functional/partial.py", "functional/test_partial.py", {
        "xp.where(row_sum == 0, -xp.inf, zero_neginf(row_max, xp) + xp.log(nonzero(row_sum, xp)))":
            "zero_neginf(row_max, xp) + xp.log(nonzero(row_sum, xp))",
    }),
    *faults_of("src/regard/functional/backward.py", "functional/test_backward.py functional/test_dropout.py", {
        "xp.broadcast_to(weights * factors, d_scores.shape)": "xp.broadcast_to(weights, d_scores.shape)",
    }),
    *faults_of("src/regard/functional/backward.py", "functional/test_backward.py", {
        "sum_to_shape(-delta * stats.weights(p.sinks, xp), p.sinks.shape)":
            "sum_to_shape(delta * stats.weights(p.sinks, xp), p.sinks.shape)",
        "(block.capped / p.softcap) ** 2": "(block.scores / p.softcap) ** 2",
    }),
    *faults_of("src/regard/functional/positions/rotary.py", "functional/test_rotary.py", {
        "length = None if bounds is None else bounds[1] + 1": "length = None if bounds is None else bounds[1]",
    }),
    *faults_of("src/regard/functional/blockwise.py", "functional/test_attention.py trace/test_attention_map.py", {
        "slice(rows.start + s.start, rows.start + s.stop)": "slice(s.start, s.stop)",
    }),
    *faults_of("src/regard/functional/masks/block_mask.py", "functional/test_block_mask.py", {
        "last[open_end.astype(bool)] = keys": "last[open_end.astype(bool)] = keys - 1",
    }),
    # The kernel. Faults of one file are neighbours: its objects are then compiled once for both.
    *faults_of("csrc/attention/decode.cpp", "functional/native/test_attention.py", {
        "row = head % params.heads_per_kv * params.queries + i;":
            "row = head % params.heads_per_kv + i * params.heads_per_kv;",
    }),
    *faults_of("csrc/attention/decode.cpp", "functional/native/test_attention.py functional/test_dropout.py", {
        "dropout_factor<T>(params_, head_of(head, row), i, start + j)":
            "dropout_factor<T>(params_, head_of(head, row), i, j)",
    }),
    *faults_of("csrc/attention/backward.cpp", "functional/native/test_backward.py", {
        "accumulate_rows(d_v_, value_width_, key_begin_, keys, fwd_.value_dim, params_.d_v, segment > 0);":
            "accumulate_rows(d_v_, value_width_, key_begin_, keys, fwd_.value_dim, params_.d_v, false);",
        "(start_ - first_query_ + i) + (key_end_ - 1 - start - j)":
            "(start_ - first_query_ + i) + (key_end_ - start - j)",
    }),
    *faults_of("csrc/ops/ops.cpp", "functional/native/test_ops.py", {
        "const V<T> centered = without_padding<T>(load_n<T>(x + j, count) - mean, count);":
            "const V<T> centered = load_n<T>(x + j, count) - mean;",
    }),
    *faults_of("csrc/ops/adamw.cpp", "functional/native/test_ops.py", {
        "boundary = max_of(start, min_of(stop, params.decayed));": "boundary = min_of(stop, params.decayed);",
    }),
    *faults_of("csrc/gemm/linear.cpp", "functional/native/test_ops.py functional/test_equations.py", {
        "is_last && params.bias && j < count ?": "params.bias && j < count ?",
    }),
    *faults_of("csrc/attention/map.cpp", "functional/native/test_map.py trace/test_attention_map.py", {
        "for (ptrdiff_t l = count_ - i; l < N; ++l) some[l] = 0;":
            "for (ptrdiff_t l = count_ - i - 1; l < N; ++l) some[l] = 0;",
    }),
    *faults_of("csrc/gemm/quantized.h", "nn/test_quantized.py", {
        "bits_at(block.word(0), part % 4 * 8 + 6, 3) << 4);": "bits_at(block.word(0), part % 4 * 8 + 6, 3) << 2);",
    }),
    *faults_of("csrc/gemm/fixed_point.h", "functional/native/test_quantized.py", {
        "-Format::CENTER * (all - 256 * upper)": "-Format::CENTER * (all - 255 * upper)",
        "value = (value + 128) >> 8": "value = value >> 8",
        "Format::PART * FIXED_POINT_UNITS < 0x1p31": "Format::PART * FIXED_POINT_UNITS < 0x1p32",
    }),
    *faults_of("csrc/gemm/gemv.h", "functional/native/test_quantized.py", {
        "if (t) totals[r] = load_n<float>(to + r * out_row, width);": "",
    }),
    *faults_of("csrc/bindings/linear.cpp", "functional/native/test_batches.py", {
        "if (params.residual) params.residual += params.rows * output_row;": "",
    }),
    # Models.
    *faults_of("src/regard/models/roberta.py",
               "models/test_encoders.py models/test_tokenized_inputs.py models/test_golden.py", {
        "np.where(is_text, is_text.cumsum(axis=1), 0)": "np.where(is_text, np.arange(1, ids.shape[1] + 1), 0)",
    }),
    *faults_of("src/regard/models/nomic_bert.py", "models/test_encoders.py models/test_golden.py", {
        "read_rope(reader, sizes, base=1000.0)": "read_rope(reader, sizes)",
    }),
    *faults_of("src/regard/models/gpt2.py", "models/test_decoder.py models/test_golden.py", {
        '"tied": reader.flag("tie_word_embeddings", True)': '"tied": reader.flag("tie_word_embeddings", False)',
    }),
    *faults_of("src/regard/functional/positions/embeddings.py", "functional/test_equations.py", {
        "np.arange(1, 2 * (num_heads - below), 2) / (2 * below)": "np.arange(1, num_heads - below + 1) / (2 * below)",
    }),
    *faults_of("src/regard/models/checkpoint/gguf_architectures.py", "models/checkpoint", {
        '"attn_k.weight": deinterleaved("num_key_value_heads")':
            '"attn_k.weight": deinterleaved("num_attention_heads")',
    }),
    *faults_of("src/regard/models/generation/sampling.py", "models/generation", {
        "np.cumsum(probabilities) - probabilities < self.top_p": "np.cumsum(probabilities) < self.top_p",
    }),
    *faults_of("src/regard/models/generation/loop.py", "models/generation", {
        "self._pending[: min(places)]": "self._pending[: places[0]]",
    }),
    *faults_of("src/regard/nn/kv_cache.py", "nn/test_kv_cache.py", {
        "_low=self._low + dropped": "_low=self._low",
    }),
    # Traces and edits.
    *faults_of("src/regard/trace/edits.py", "trace/test_edits.py trace/test_edit_positions.py", {
        "context[i, start : start + length].mean": "context[i, :length].mean",
    }),
    *faults_of("src/regard/trace/edit_parts.py", "trace/test_edit_positions.py trace/test_edits.py", {
        "np.where(numbers < 0, numbers + lengths, numbers)": "np.where(numbers < 0, numbers + lengths.max(), numbers)",
    }),
    *faults_of("src/regard/trace/trace_file.py", "trace/test_trace.py test_architecture.py", {
        "letters[len(letters) - ndim :]": "letters[:ndim]",
    }),
    *faults_of("src/regard/trace/step_names.py",
               "trace/test_trace.py trace/test_edits.py trace/test_optional_steps.py", {
        'parts[1:-1] = [_ONE_PART if part == "*" else part for part in parts[1:-1]]':
            'parts[1:] = [_ONE_PART if part == "*" else part for part in parts[1:]]',
    }),
    *faults_of("src/regard/trace/map_sources.py", "trace/test_attention_map.py", {
        "layout.query_indices(rows) + layout.resolve_offset()": "layout.query_indices(rows)",
    }),
    *faults_of("src/regard/trace/trace.py", "trace/test_stop.py models/test_memory.py", {
        "self._plan = run_plan(self._only, tuple(self._edit), stop, bool(maps))":
            "self._plan = run_plan(self._only, tuple(self._edit), None, bool(maps))",
    }),
    *faults_of("src/regard/trace/plan.py", "trace/test_optional_steps.py", {
        "            if not self._depends_on_run(full):\n": "            if True:\n",
        "if asks_by_name(full, x)] if is_optional else patterns": "if asks_by_name(full, x)] if False else patterns",
    }),
    *faults_of("src/regard/functional/scores/stages.py", "trace/test_trace_maps.py", {
        "has = (True, p.softcap is not None,": "has = (True, True,",
    }),
    *faults_of("src/regard/nn/fast_paths.py", "nn/test_fast_paths.py trace/test_stop.py", {
        "plan.edited or plan.stops or plan.keeps_map": "plan.edited or plan.keeps_map",
    }),
    *faults_of("src/regard/trace/attention_map.py", "trace/test_attention_map.py dask/test_attention_map.py", {
        "head * count_heads(self.k) // count_heads(self.q)": "head % count_heads(self.k)",
    }),
    *faults_of("src/regard/metrics/heads.py", "metrics/test_metrics.py", {
        "after[np.arange(len(block.rows)), block.rows] = False":
            "after[np.arange(len(block.rows)), block.rows] &= True",
    }),
    *faults_of("src/regard/metrics/rollout.py", "explorer/test_ablation.py", {
        "axis=0).sum(0) / len(weights)": "axis=0).mean(0)",
    }),
    # The explorer.
    *faults_of("src/regard/explorer/pooling.py", "explorer/test_pooling.py", {
        "pooled = pooled / (heights[:, None] * widths)": "pooled = pooled / (heights[0] * widths[0])",
        'np.searchsorted(cell_edges, edges[1:], side="left")': 'np.searchsorted(cell_edges, edges[1:], side="right")',
    }),
    *faults_of("src/regard/explorer/export_html.py", "explorer/test_export_html.py", {
        'json_bytes(value).replace(b"<", b"\\\\u003c")': 'json_bytes(value).replace(b"</", b"<\\\\/")',
    }),
    *faults_of("src/regard/explorer/address.py", "explorer/test_address.py", {
        "parse_qsl(fragment, keep_blank_values=True, max_num_fields=_MAX_PARTS)":
            "parse_qsl(fragment, max_num_fields=_MAX_PARTS)",
    }),
    *faults_of("src/regard/explorer/cache.py", "explorer/test_cache.py", {
        "self._arrays.move_to_end(key)": "self._arrays.move_to_end(key, last=False)",
    }),
    *faults_of("src/regard/explorer/frontend/data/matrix.js", "browser/test_javascript.py", {
        "sum / ((i1 - i0) * (j1 - j0))": "sum / bin_size ** 2",
    }),
    *faults_of("src/regard/explorer/frontend/data/tokens.js", "browser/test_javascript.py", {
        "tokens[positioned[first]].end <= index": "tokens[positioned[first]].end < index",
    }),
    *faults_of("src/regard/explorer/frontend/state/url.js", "browser/test_javascript.py", {
        "isWritten && codec.read(codec.write(value)) !== undefined": "isWritten",
    }),
    *faults_of("src/regard/explorer/frontend/data/codec.js", "browser/test_javascript.py", {
        "1 + Math.ceil(count / blob[0])": "1 + Math.floor(count / blob[0])",
    }),
    # Commands and texts.
    *faults_of("src/regard/cli/commands/heads.py", "cli/test_heads_ablate_embed.py", {
        "measure_corpus(model, texts, truncate=options.truncate, progress=progress, resume=sums)":
            "measure_corpus(model, texts, progress=progress, resume=sums)",
    }),
    *faults_of("src/regard/cli/main.py", "cli/test_streams.py", {
        "return EXIT_CLOSED_PIPE": "return 0",
    }),
    *faults_of("src/regard/text/lines.py", "text/test_lines.py", {
        'content.decode("utf-8-sig")': 'content.decode("utf-8")',
        "lines if lines[-1] else lines[:-1]": "lines",
    }),
    *faults_of("src/regard/text/token_bytes.py", "text/test_token_bytes.py text/test_token_labels.py", {
        "*range(0xAE, 0x100)": "*range(0xAD, 0x100)",
    }),
    *faults_of("src/regard/text/encoding.py", "text/test_word_tokenizer.py views/test_patches.py", {
        "if word is not None and word == previous:": "if word == previous:",
    }),
    *faults_of("src/regard/text/tokenizer_rules.py", "text/test_subword_tokenizer.py", {
        "for key, x in own.items() if x}": 'for key, x in own.items() if x and key != "mask_token"}',
    }),
    # Training and corpora.
    *faults_of("src/regard/training/schedules.py", "test_architecture.py", {
        "return (step + 1) / warmup": "return step / warmup",
    }),
    *faults_of("src/regard/dask/partitions.py", "dask/test_corpus.py", {
        "place += count.rows": "place += count.rows - 1",
    }),
)  # fmt: skip


def main() -> int:
    """Plant the faults that are chosen; return 1 if one is not noticed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", metavar="PATTERN", default="", help="a number, from 1, or a part of a file's name")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes of pytest (2)")
    parser.add_argument(
        "--named", action="store_true", help="run the named tests alone, not the whole suite after them"
    )
    parser.add_argument("--list", action="store_true", help="print the faults alone")
    arguments = parser.parse_args()
    chosen = [
        (number, fault)
        for number, fault in enumerate(FAULTS, 1)
        if arguments.only in ("", str(number)) or (not arguments.only.isdigit() and arguments.only in fault.file)
    ]
    for number, fault in chosen if arguments.list else ():
        print(f"{number}. {fault.file}: {fault.old} → {fault.new}")
    if arguments.list:
        return 0
    if not chosen or report_misplaced(chosen):
        return 1
    use_copy()
    copy_repository()
    parts = list(dict.fromkeys(part for _, fault in chosen for part in tests_of(fault)))
    start = time.perf_counter()
    if found := first_failure(parts, arguments.jobs):
        print(f"without a fault {found} fails, so that nothing could be told")
        return 1
    print(f"without a fault: passed ({time.perf_counter() - start:.0f} s)", flush=True)
    missed = 0
    for number, fault in chosen:
        start = time.perf_counter()
        with planted(fault):
            found = first_failure(tests_of(fault), arguments.jobs)
            where = "" if found else ", not by the named tests"
            for rest in () if found or arguments.named else WHOLE:
                found = found or first_failure([part for part in rest if is_installed(part)], arguments.jobs, rest)
        missed += not found
        told = f"caught by {found}{where}" if found else f"NOT CAUGHT: {fault.old} → {fault.new}"
        print(f"{number:3} {fault.file}: {told} ({time.perf_counter() - start:.0f} s)", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} faults were caught")
    return int(missed > 0)


def report_misplaced(faults: Iterable[tuple[int, Fault]]) -> bool:
    """Print the faults whose old text does not occur exactly once; return whether there are any."""
    is_any = False
    for number, fault in faults:
        count = (ROOT / fault.file).read_text(encoding="utf-8").count(fault.old)
        if count != 1 or fault.old == fault.new:
            print(f"{number:3} {fault.file}: its old text occurs {count} times: {fault.old}")
            is_any = True
    return is_any


def tests_of(fault: Fault) -> list[str]:
    return [f"tests/{part}" for part in fault.tests.split()]


def is_installed(part: str) -> bool:
    """Tell whether the tests of peers, or of the browser, can run here."""
    needed = {"tests/parity": ("torch", "transformers", "jax"), "tests/browser": ("playwright",)}[part]
    return all(map(importlib.util.find_spec, needed))


def use_copy() -> None:
    """Make the processes that start from here on find the package in the copy."""
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(TREE / "src"), "PYTHONDONTWRITEBYTECODE": "1"}


def copy_repository() -> None:
    """Make the copy like the working tree. Files that are alike stay: what was built of them is still right."""
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    files = [name for name in listed if (ROOT / name).is_file()]
    for path in [path for path in TREE.rglob("*") if path.is_file() and not path.is_symlink()]:
        if "node_modules" not in path.parts and path.relative_to(TREE).as_posix() not in files:
            path.unlink()
    for name in files:
        to = TREE / name
        if not to.exists() or not filecmp.cmp(ROOT / name, to, shallow=False):
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to)  # with a new time: it may have had a fault when it was built
    modules, link = ROOT / "tests" / "browser" / "node_modules", TREE / "tests" / "browser" / "node_modules"
    if modules.exists() and not link.exists():
        link.symlink_to(modules)
    shutil.copy(installed_kernel(), TREE / NATIVE)
    where = [sys.executable, "-c", "import regard; print(regard.__file__)"]
    found = subprocess.run(where, cwd=TREE, check=True, capture_output=True, text=True).stdout.strip()
    if not Path(found).is_relative_to(TREE):
        raise SystemExit(f"python finds regard in {found}, not in the copy")


def installed_kernel() -> str:
    """Return the file of the compiled kernel of this environment."""
    spec = importlib.util.find_spec("regard.functional.native._kernel")
    if spec is None or spec.origin is None:
        raise SystemExit("regard is not installed here with its compiled kernel")
    return spec.origin


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """Plant a fault in the copy; of the kernel, build it too."""
    path = TREE / fault.file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    is_compiled = fault.file.startswith("csrc/")
    try:
        if is_compiled:
            build_kernel()
        yield
    finally:
        path.write_text(text, encoding="utf-8")
        if is_compiled:
            shutil.copy(installed_kernel(), TREE / NATIVE)


def build_kernel() -> None:
    """Build the kernel from the copy, and put it beside its sources."""
    shutil.rmtree(WHEELS, ignore_errors=True)
    command = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", f"--wheel-dir={WHEELS}"]
    path = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}  # cmake and ninja
    settings = f"--config-settings=build-dir={OBJECTS}"
    subprocess.run([sys.executable, *command, settings, "."], cwd=TREE, check=True, env=os.environ | path)
    (wheel,) = WHEELS.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if "/_kernel" in name and name.endswith(".so"))
        (TREE / NATIVE / Path(name).name).write_bytes(archive.read(name))


def first_failure(parts: list[str], jobs: int, asked: tuple[str, ...] = ()) -> str:
    """Return the first test of some files and folders that fails, of all if none is named; "" if they pass."""
    if asked and not parts:
        return ""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", str(jobs), "-p", "no:cacheprovider", *parts]
    process = subprocess.Popen(
        command, cwd=TREE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return f"the limit of {TIME_LIMIT} s"
    if process.returncode == 0:
        return ""
    named = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)
    return named[1] if named else f"pytest's status {process.returncode}: {output.strip()[-200:]}"


if __name__ == "__main__":
    sys.exit(main())
