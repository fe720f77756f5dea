"""Retired names do not come back: one word for one thing, as in ``docs/glossary.md``."""

import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Where a name was retired: in one area a name may be retired that means something else in another.
AREAS = {
    "python": ("src/**/*.py", "src/**/*.pyi", "tests/**/*.py", "benchmarks/*.py", "examples/*.py", "docs/*.py"),
    "functional": ("src/regard/functional/**/*.py", "src/regard/functional/**/*.pyi"),
    "library": ("src/**/*.py", "src/**/*.pyi"),
    "values": ("src/**/*.py",),
    "dask": ("src/regard/dask/*.py", "src/regard/cli/corpus.py"),
    "nn": ("src/regard/nn/*.py",),
    "trace": ("src/regard/trace/*.py",),
    "models": ("src/regard/models/**/*.py",),
    "capture": ("src/regard/_capture/*.py",),
    "text": ("src/regard/text/*.py",),
    "views": ("src/regard/views/*.py", "src/regard/plot/*.py", "src/regard/terminal/*.py"),
    "metrics": ("src/regard/metrics/*.py",),
    "cli": ("src/regard/cli/**/*.py",),
    "explorer": ("src/regard/explorer/**/*.py",),
    "csrc": ("csrc/**/*.h", "csrc/**/*.cpp", "CMakeLists.txt"),
    "frontend": ("src/regard/explorer/frontend/**/*.[jt]s", "tests/browser/**/*.js"),
    "pages": ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md", "docs/decisions/*.md"),
    "everywhere": (
        *("src/**/*.py", "src/**/*.pyi", "tests/**/*.py", "benchmarks/*.py", "examples/*.py", "docs/*.py"),
        *(
            "csrc/**/*.h",
            "csrc/**/*.cpp",
            "src/regard/explorer/frontend/**/*.[jt]s",
            "README.md",
            "docs/*.md",
            "noxfile.py",
        ),
    ),
}

# The area, the retired names as a regular expression between word boundaries, and the standard term.
RETIRED = (
    # Plain English
    ("everywhere", r"(?<![Tt]here )(?:is|are) no (?:decoder|text|terminal|error|number|part|problem|views?|fault)",
     "is not a"),
    ("pages", r"(?<![Tt]here )(?:is|are) no (?:part|number|error|programs?|piece)", "is not a"),
    ("library", r"nobody wants|sooner", "unused, faster"),
    ("pages", r"nobody wants|sooner|goes on", "unused, faster, continues"),
    ("dask", r"[Pp]lan|make_plan",
     "partitioning, manifest: a plan is that of a call of attention or of a recorded run"),
    # Variables say what they hold
    ("values",
     r"(?<!>>> )(?<!self, )(?:found|given|chosen|known|wanted)(?:, \w+)*(?:: [^=*\n]+)? :?=(?!=)"
     r"|(?<!>>> )for (?:found|known|wanted)",
     "what the value is: scores, gradients, paths"),
    ("library", r"def of\(|[(, ]found: [A-Z]", "from_model, from_graph; what the argument is"),
    # Mathematics
    ("everywhere", r"bends?|bend_called|_BENDS", "activation"),
    ("everywhere", r"Normaliser", "SoftmaxStats"),
    ("functional", r"highest", "row_max"),
    ("everywhere", r"_onward", "online_softmax_step"),
    ("functional", r"shrink|shrinks", "correction"),
    ("python", r'"blocked"|"direct"', '"blockwise", "reference"'),
    ("pages", r'"blocked"|"direct"', '"blockwise", "reference"'),
    ("python", r"Problem|as_given", "AttentionInputs, validate_inputs"),
    ("python", r"\.but\(", "replace"),
    ("python", r"\.computed\(\)|\.widened\(\)", "to_compute_dtype, upcast"),
    ("functional", r"\.work", "compute_dtype"),
    ("python", r"for_each_query_head|sum_of_query_heads", "repeat_kv, sum_over_query_groups"),
    ("functional", r"Grid", "ScoreLayout"),
    ("functional", r"\.lead", "batch_shape"),
    ("library", r"\.beside\(|def beside", "to_namespace"),
    ("python", r"EVERY|FARTHEST", "ALL, MAX_POSITION"),
    ("functional", r"known\(", "is_concretely_true"),
    ("python", r"side_by_side|without_gradients", "concat, no_grad"),
    ("functional", r"_is_short|_LONG", "is_half, COMPUTE_DTYPES"),
    ("everywhere", r"[Ss]hort floats?", "half precision"),
    ("python", r"Cover|Cover\.MIXED", "BlockKind.PARTIAL"),
    ("python", r"class (?:Both|Either)|Both\(|Either\(", "LogicalAnd, LogicalOr"),
    ("python", r"Dense\(|Spans|ByDistance|RelativePositions|Segments\(|F\.Window|F\.Prefix",
     "DenseMask, KeyRangeMask, …"),
    ("pages", r"`Dense`|`Spans`|ByDistance|RelativePositions|`Segments`|`Window`|`Prefix`",
     "DenseMask, KeyRangeMask, …"),
    ("functional", r"nearest", "min_distance"),
    ("functional", r"\.hides|hides\s*[:=]", "can_mask"),
    ("python", r"GradientSum", "BiasGradAccumulator"),
    ("functional", r"seen|seen_blocks", "allowed, nonempty_blocks"),
    ("functional", r"def shares|_shares", "probabilities"),
    ("python", r"infinity_as_largest|shift_of|or_one|without_hidden|with_infinities", "clamp_posinf, …"),
    ("functional", r"within\(", "saturate_cast"),
    ("functional", r"def attend", "blockwise, native_forward"),
    ("functional", r"def record|path_of|reason_against|WHOLE_MAPS",
     "record_call, choose_implementation, unsupported_reason"),
    ("library", r"class Rules|Rules\(|-> Rules|Ruled", "KernelMaskArgs, MaskAndBias"),
    ("everywhere", r"regard\.merge", "merge_partials"),
    ("functional", r"Part|part_of|pull_back", "ScorePart, slice_heads, native_backward"),
    ("functional", r"turned|turns?|rotate\(", "rotate, apply_rotary"),
    ("python", r"Rotation", "CosSin"),
    ("everywhere", r"table_positions", "learned_positions"),
    ("functional", r"_mixed", "splitmix64"),
    ("trace", r"def (?:products|entry|kept)|_looked_at", "score_terms, select"),
    ("python", r"write_whole", "atomic_write"),
    ("library", r"(?:brief|one_line|listed)\(", "truncate, escape, join_names"),
    # Layers and traces
    ("nn", r"def (?:gather|combine|project|keys_and_values)", "attend, project_out, project_qkv, project_kv"),
    ("python", r"BlockEnd|block_end|_BEHIND_HEADS", "FusedBlockTail, fused_tail"),
    ("python", r"packed_once|kept_once|NOT_GIVEN", "instance_cache, required fields"),
    ("python", r"Silent|SILENT", "NullRecorder, NULL_RECORDER"),
    ("python", r"\.passes\(|def passes", "can_skip"),
    ("python", r"keep_attention|keeps_attention", "record_attention, wants_attention"),
    ("trace", r"def (?:describe|finish|part|unused)", "set_metadata, check_matched, subtrace, unmatched"),
    # Models and text
    ("models", r"Writing|_writings|Speller|class Why|Why =|Forced",
     "GenerationState, StreamingDetokenizer, finish_reason, ForcedTokens"),
    ("models", r"Ending|\.ending", "StopCondition, finish_reason"),
    ("models", r"def shares|advance_all|look_back|def remember",
     "probabilities, generation_loop, record_full_sequence"),
    ("models", r"def (?:begin|advance)", "prefill, decode_step"),
    ("models", r"class State|\.entries\(", "DecodingState, select_batch"),
    ("models", r"def limit", "max_length"),
    ("models", r"named=", "label"),
    ("models", r"class Tensor|take_weights|take_decoder|take_sizes|load_tensors", "TensorSpec, load_layers"),
    ("models", r"ours|theirs", "name, hf_name"),
    ("models", r"_through|\.reach|def reach", "forward_with_cache, max_length"),
    ("models", r"_BOOKKEEPING|read_bookkeeping", "WITHOUT_EFFECT, check_unsupported_flags"),
    ("models", r"Carrier|examine|Findings", "WheelSource, verify, VerificationResult"),
    ("python", r"encoding\.(?:spans|special|words)", "offsets, special_tokens_mask, word_ids"),
    ("python", r"tokenizer\.chat\(|def chat", "apply_chat_template"),
    ("library", r"why_not|usual_number", "unavailable_reason, default_num_threads"),
    ("functional", r"copied\(", "pooled_copy"),
    # Metrics, capture, views, command line
    ("metrics", r"previous|duplicate", "previous_token, duplicate_token"),
    ("metrics", r"corrupt(?:_\w+)?", "corrupted"),
    ("pages", r"corrupt(?:_\w+)?", "corrupted"),
    ("metrics", r"Cases|mixed_strips|strips?|_handed_over|Check", "row blocks"),
    ("capture", r"class Notes|Notes\(|take_note|Listener|listening|speaks_to_the_interface|Known|_Slowly",
     "CaptureSession, AttentionWrapper, …"),
    ("views", r"Around|room_of|Ruler|Lettering", "Margins, available_size, TextMetrics, FontFallback"),
    ("views", r"def (?:strongest|matching|follow|readable)|\.hidden",
     "top_k, find_rows, explain_row, escape, special_mass"),
    ("views", r"\.(?:was|became|explained)", "original_label, contextual_label, explained_variance_ratio"),
    ("cli", r"--keep-special|--random|--other-model|--words|MISTAKE|introduce", "--show-special-tokens, --toy, …"),
    ("pages", r"--keep-special|--other-model|--words", "--show-special-tokens, --compare-model, --merge-subwords"),
    # Kernel
    ("csrc", r"take_room|give_room|Room|room", "buffer pool: acquire, release"),
    ("csrc", r"wait_for_turn|turn_halves|turn_neighbours|turned", "wait_for_ticket, rope_half, rope_interleaved"),
    ("csrc", r"over_lanes|FEW_ROWS|few_together|put_together", "reduce_lanes, splitkv, splitkv_combine"),
    ("csrc", r"Look|Sight|Looker|Around|What|Bend|straight",
     "MapParams, MapQuantity, MapKernel, OpParams, Op, Activation"),
    ("csrc", r"class Rows|struct Rows|Rows<|go_on|Lines|line_of|place_of|Cells",
     "OnlineSoftmax, StridedRows, MaskAccess"),
    ("csrc", r"Into|DEPTH|HEIGHT|PANEL|TALL|WIDE", "Epilogue, KC, MC, NR, MR"),
    ("csrc", r"FEW|STREAM|AHEAD|NEAR|MUCH|TASK|SEGMENT|STEP|PORTION", "names that say what is counted"),
    ("csrc", r"Kind|value_features|sharing|\.kept|\.numbers|\.diagonal",
     "DType, value_dim, heads_per_kv, dropout_scale, …"),
    ("csrc", r"FAR|held_sink|at_least|at_most|Shares|Largest",
     "MAX_FINITE, clamped_sink, max, min, RowNormalizer, TopK"),
    ("csrc", r"Between|Some|refuse|of_16_bits|take_part|keep_off_caller", "TemporaryBuffer, OptionalArray, …"),
    ("csrc", r"stand_at|take_queries|in_seen_runs|multiply_adds", "set_block, load_queries"),
    # Explorer
    ("explorer", r"WAYS|way=|by=|check_sides|LARGEST_ANSWER", "display modes, bin_size, check_num_runs, MAX_TILE_SIDE"),
    ("explorer", r'"says"|"not"', '"description", "caveat"'),
    ("explorer", r"def (?:answer|fault)|GivenUp|_worked_out|heard",
     "dispatch, internal_error, Cancelled, run_cancellable"),
    ("explorer", r"_inert|_beside_weights|worth_seeing", "json_for_script, auxiliary_blobs, opening_of"),
    ("frontend", r"Asking|Wanted|inPlace|doings|Aids|WholeMap|FetchedMap",
     "QueryClient, Query, actions, DisplayOptions, …"),
    ("frontend", r"SvgPen|NotebookDark|MemoryTold|whyNoDifference",
     "SvgContext, color scheme, MemoryPanel, differenceBlockedBy"),
    ("frontend", r"FIRST|shutLayers|offRun|overHttp|Answers",
     "INITIAL_STATE, collapsedLayers, ablatedRun, httpTransport"),
    ("frontend", r"\.says|\.not\b", "description, caveat"),
    # Paths
    ("everywhere", r"regard\.(?:measures|web|kernels|attention_map|kv_cache|edits\.force)",
     "metrics, explorer, native, trace, nn"),
    ("everywhere", r"regard\.\w+\._[a-z]\w*", "files inside packages have no underscore"),
    # Tests and pages
    ("python", r"FLOORS|test_house|made_up", "LAYERS, test_architecture, fake_traces"),
    ("pages", r"test_house|_mask\.py|_problem\.py|_around\.py|room\.cpp|few\.cpp|looking\.cpp", "the files of today"),
)  # fmt: skip

ALLOWED = {
    # This file has the retired names.
    "tests/test_glossary.py",
}


@functools.cache
def texts_of(area: str) -> dict[str, str]:
    """Return the contents of the files of an area, by path."""
    paths = sorted({path for glob in AREAS[area] for path in ROOT.glob(glob) if "node_modules" not in path.parts})
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}
    return {name: text for name, text in texts.items() if name not in ALLOWED}


def pattern(names: str) -> re.Pattern[str]:
    """Return what finds whole names; one may begin with a dot or end with a parenthesis."""
    return re.compile(rf"(?:(?<!\w)|(?=\.))(?:{names})(?:(?<=[(=:])|(?!\w))")


@pytest.mark.parametrize(("area", "names", "standard"), RETIRED, ids=[f"{row[0]}: {row[1]}" for row in RETIRED])
def test_a_retired_name_is_used_nowhere(area, names, standard):
    retired, anywhere, texts = pattern(names), re.compile(names), texts_of(area)
    assert texts, f"the area {area} has no files"
    found = [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}"
        for name, text in texts.items()
        if anywhere.search(text)  # much faster than the borders of words, and found in few files
        for match in retired.finditer(text)
    ]
    assert not found, f"use {standard}:\n" + "\n".join(found[:30])
