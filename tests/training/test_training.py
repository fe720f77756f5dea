"""The loop: what accumulation, dropout, masks and checkpoints do, and that a resumed run has the same bits."""

import json
import signal
import threading
from dataclasses import replace

import numpy as np
import pytest

import regard
import tiny_decoder
from regard import RegardError, training
from regard.models import toy
from regard.nn import parameters
from regard.text.chat import ChatTemplate
from regard.training.log import Log
from regard.training.loop import _add_gradients
from sweeps import sweep_after

GPT2 = {"model_type": "gpt2", "vocab_size": 257, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16}
LLAMA = {**tiny_decoder.CONFIG, "eos_token_id": None}


def ids_of(number, rows=4, length=9):
    rng = np.random.default_rng([3, number])
    return (rng.integers(0, 50, (rows, 1)) + np.arange(length)) % 50


def new(config=GPT2, **options):
    return training.new_model(config, tiny_decoder.tokenizer(), seed=1, **options)


def test_a_model_learns():
    run = training.train(new(), ids_of, steps=150, learning_rate=1e-2, warmup=10, evaluation=[ids_of(10**6)])
    assert run.steps[0].loss > 5
    assert run.steps[-1].evaluation_loss < 0.5
    assert run.model(np.arange(8)).logits[0, -1].argmax() == 8


def test_a_loaded_model_is_trained_on(tmp_path):
    folder = tiny_decoder.write(tmp_path / "model")
    model = regard.load(folder)
    first = training.train(model, ids_of, steps=3, learning_rate=1e-3)
    other = training.train(folder, ids_of, steps=3, learning_rate=1e-3)
    assert [s.loss for s in first.steps] == [s.loss for s in other.steps]
    changed = parameters(first.model)
    assert all(not np.array_equal(x, changed[name]) for name, x in parameters(model).items())
    again = parameters(regard.load(folder))
    assert all(np.array_equal(x, again[name]) for name, x in parameters(model).items())  # that which was given is not


def test_accumulated_batches_are_one_large_batch():
    """With padding: the mean is that of all targets, not of the means of batches."""
    rows = np.concatenate([ids_of(0), ids_of(1)])
    targets = rows[:, 1:].copy()
    targets[:3, 2:] = -100
    parts = [(rows[:4, :-1], targets[:4]), (rows[4:, :-1], targets[4:])]
    config = {"steps": 1, "learning_rate": 1e-3, "max_norm": None}
    one = new(dtype=np.float64)
    two = new(dtype=np.float64)
    large = training.train(one, [(rows[:, :-1], targets)], **config)
    small = training.train(two, parts, accumulate=2, **config)
    assert small.steps[0].loss == pytest.approx(large.steps[0].loss, rel=1e-12)
    np.testing.assert_allclose(two.gradient, one.gradient, rtol=0, atol=1e-12)


def test_padding_and_texts():
    texts = ["abc", "a", "hello there"]
    model = new()
    made = training.train(model, [texts], steps=1).steps[0]
    expected = []
    fresh = new()
    for text in texts:
        if len(text) > 1:
            logits = fresh.model(text).logits[0, :-1].astype(np.float64)
            lse = np.log(np.exp(logits).sum(-1))
            expected += list(lse - logits[np.arange(len(text) - 1), list(fresh.tokenizer(text).ids[1:])])
    assert made.loss == pytest.approx(np.mean(expected), rel=1e-5)


def test_what_decays():
    model = new()
    before = {name: x.copy() for name, x in model.tensors.items()}
    optimizer = training.AdamW(model.values.size, model.decayed, model.values.dtype, weight_decay=0.5)
    optimizer.step(model.values, np.zeros_like(model.values), 0.1)
    for name, x in model.tensors.items():
        factor = 0.95 if x.ndim == 2 else 1.0
        np.testing.assert_allclose(x, before[name] * np.float32(factor), rtol=1e-6)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_dropout_is_that_of_the_seed(checkpoint):
    """Also where a block is computed again for its gradient: then both gradients are those of one function."""
    options = {"steps": 5, "dropout": 0.2, "learning_rate": 1e-3}
    losses = [
        [step.loss for step in training.train(new(), ids_of, seed=seed, checkpoint=recomputed, **options).steps]
        for seed, recomputed in ((1, False), (1, checkpoint), (2, checkpoint))
    ]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)
    assert abs(losses[1][0] - losses[2][0]) > 1e-6


def test_the_gradient_with_dropout_is_that_of_differences():
    from regard.training.dropout import DropoutRecorder

    model, batch = new(dtype=np.float64), training.Batch(ids_of(0)[:, :-1], ids_of(0)[:, 1:])

    def loss():
        return _add_gradients(model, [batch], [DropoutRecorder(0.3, (4, 2))], 0.1, False)

    loss()
    gradient, direction = model.gradient.copy(), np.random.default_rng(0).standard_normal(model.values.size)
    start, h = model.values.copy(), 1e-6
    ends = []
    for sign in (1, -1):
        model.values[...] = start + sign * h * direction
        ends.append(loss())
    assert (ends[0] - ends[1]) / (2 * h) == pytest.approx(gradient @ direction, rel=1e-6)


@pytest.mark.parametrize("stop", [1, 4, 5])
def test_a_resumed_run_has_the_bits_of_one_that_was_not_interrupted(tmp_path, stop):
    options = {"steps": 8, "dropout": 0.1, "accumulate": 2, "save_every": 2, "warmup": 2}
    whole = training.train(new(), ids_of, folder=tmp_path / "whole", log=tmp_path / "whole.csv", **options)

    class Killed(Exception):
        pass

    def killed(step, _):
        if step.step == stop:
            raise Killed

    cut = {**options, "folder": tmp_path / "cut", "log": tmp_path / "cut.csv"}
    with pytest.raises(Killed):
        training.train(new(), ids_of, progress=killed, **cut)
    run = training.train(new(), ids_of, resume=True, **cut)
    assert run.steps[-1].loss == whole.steps[-1].loss
    for name in ("model.safetensors", "optimizer.safetensors", "config.json", "training.json"):
        assert (run.checkpoint / name).read_bytes() == (whole.checkpoint / name).read_bytes()
    rows = [[row.split(",")[:2] for row in (tmp_path / f"{x}.csv").read_text().splitlines()] for x in ("whole", "cut")]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 9


def test_an_iterable_is_passed_over_when_resumed(tmp_path):
    batches = [ids_of(i) for i in range(6)]
    whole = training.train(new(), batches, steps=6)
    training.train(new(), batches[:3], steps=6, folder=tmp_path)  # it ends
    run = training.train(new(), iter(batches), steps=6, folder=tmp_path, resume=True)
    assert [step.loss for step in run.steps] == [step.loss for step in whole.steps[3:]]


@pytest.fixture
def _ctrl_c_interrupts():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits SIG_IGN
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_ctrl_c_interrupts")
def test_ctrl_c_ends_after_the_step_and_saves(tmp_path):
    def interrupt(step, _):
        if step.step == 3:
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    run = training.train(new(), ids_of, steps=10, folder=tmp_path, progress=interrupt)
    assert run.interrupted
    assert list(training.checkpoints(tmp_path)) == [run.steps[-1].step]
    assert run.steps[-1].step in (3, 4)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("_ctrl_c_interrupts")
def test_a_second_ctrl_c_ends_at_once(tmp_path):
    def interrupt(step, _):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        training.train(new(), ids_of, steps=10, folder=tmp_path, progress=interrupt)
    assert not training.checkpoints(tmp_path)


def test_another_thread_has_no_signals():
    found = []
    thread = threading.Thread(target=lambda: found.append(training.train(new(), ids_of, steps=1)))
    thread.start()
    thread.join()
    assert len(found[0].steps) == 1


def test_json_lines(tmp_path):
    training.train(new(), ids_of, steps=2, log=tmp_path / "log.jsonl", evaluation=[ids_of(9)])
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    assert rows[0]["evaluation_loss"] is None
    assert rows[1]["evaluation_loss"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batches": 3}, "batches must be"),
        ({"batches": [np.zeros((2, 1), int)]}, "at least two tokens"),
        ({"steps": 0}, "steps"),
        ({"dropout": 1.0}, "dropout"),
        ({"schedule": "linear"}, "schedule must be one of"),
        ({"resume": True}, "resume needs the folder"),
        ({"folder": ""}, "folder is the name of a folder, got ''"),
        ({"folder": "a\0b"}, "folder is the name of a folder"),
        ({"learning_rate": -1.0}, "at least 0"),
        ({"log": "x.txt"}, "csv or .jsonl"),
        ({"batches": [(np.zeros((1, 3), int), np.full((1, 3), -100))]}, "no targets"),
        ({"max_norm": -1.0}, "max_norm must be a finite positive number"),
        ({"max_norm": np.nan}, "max_norm must be a finite positive number"),
        ({"eps": -1.0}, "eps must be a finite positive number"),
        *(({"betas": betas}, "0 ≤ beta < 1") for betas in ((-3, 0.9), (1.0, 0.9), (0.9, 2.0), 0.9)),
        ({"evaluation": "abc"}, "evaluation must be a sequence"),
        ({"evaluation": [["abc"], ["a"]]}, "no targets in batch 1"),
        ({"batches": []}, "there are no batches"),
        ({"batches": [ids_of(0)], "accumulate": 2}, "there are no batches"),
        ({"batches": [ids_of(0, length=18)]}, "sequences of 17 tokens, and the model permits 16"),
        ({"batches": [(ids_of(0, length=17), ids_of(0, length=17))]}, "sequences of 17 tokens"),
        ({"batches": [training.Batch(ids_of(0, length=17), ids_of(0, length=17))]}, "sequences of 17 tokens"),
        ({"batches": [["a" * 18]]}, "at most"),
        ({"evaluation": [ids_of(0, length=18)]}, "sequences of 17 tokens"),
        ({"batches": [(ids_of(0), ids_of(0)[:, 1:])]}, "B T each"),
    ],
)
def test_errors(tmp_path, options, message):
    folder = {} if "resume" in options else {"folder": tmp_path, "save_start": True}
    with pytest.raises(RegardError, match=message):
        training.train(new(), **{"batches": ids_of, "steps": 1, **folder, **options})
    batch_is_wrong = bool(options.get("batches"))  # a batch is drawn, and found to be wrong, once the start is stored
    assert batch_is_wrong or not training.checkpoints(tmp_path)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *((lambda dtype=dtype: new(dtype=dtype), "float") for dtype in (np.float16, np.int64, "junk")),
        (lambda: training.new_model(GPT2, tiny_decoder.tokenizer(), seed=-1), "seed must be"),
        *(
            (lambda options=options: training.AdamW(4, 4, np.dtype(np.float32), **options), "|".join(options))
            for options in ({"betas": (1.0, 0.9)}, {"eps": 0.0}, {"eps": -1.0}, {"weight_decay": -1.0})
        ),
        (lambda: training.train(toy("the cat sat"), ids_of, steps=1), "got a Toy"),
        (
            lambda: training.train(training.train(new(), ids_of, steps=1).model, ids_of, steps=1),
            r"'new model' is not stored.*give what new_model returned",
        ),
        (lambda: training.train(regard.load("minilm"), ids_of, steps=1), "masked words"),
    ],
)
def test_models_and_optimizers_that_cannot_be(call, message):
    with pytest.raises(RegardError, match=message):
        call()


def test_a_run_is_not_overwritten(tmp_path):
    training.train(new(), ids_of, steps=1, folder=tmp_path)
    with pytest.raises(RegardError, match="has a run already"):
        training.train(new(), ids_of, steps=1, folder=tmp_path)
    with pytest.raises(RegardError, match="another model"):
        training.train(new(LLAMA), ids_of, steps=2, folder=tmp_path, resume=True)


def test_a_loss_that_is_not_finite_ends_the_run():
    with np.errstate(all="ignore"), pytest.raises(RegardError, match="lower the learning rate"):
        training.train(new(), ids_of, steps=20, learning_rate=1e30, max_norm=None)


@pytest.mark.parametrize("evaluation", [(), [ids_of(9)]], ids=["of the batches", "held out"])
def test_a_last_step_that_diverged_is_not_saved(tmp_path, evaluation):
    with np.errstate(all="ignore"), pytest.raises(RegardError, match="lower the learning rate"):
        training.train(new(), ids_of, steps=1, learning_rate=1e38, evaluation=evaluation, folder=tmp_path)
    assert not training.checkpoints(tmp_path)


def test_a_log_has_null_where_json_has_no_number(tmp_path):
    log = Log(tmp_path / "log.jsonl", 0)
    log.write(training.Step(1, float("nan"), None, 0.1, float("inf"), 8, 0.5, 16.0))
    log.close()
    row = json.loads((tmp_path / "log.jsonl").read_text(), parse_constant=pytest.fail)
    assert (row["loss"], row["gradient_norm"], row["tokens"]) == (None, None, 8)


@pytest.mark.parametrize("count", [3, 4])
def test_batches_that_end_early_are_evaluated_after_the_last(tmp_path, count):
    batches = (ids_of(i) for i in range(count))  # of three the last does not fill an update
    run = training.train(
        new(), batches, steps=9, accumulate=2, evaluation=[ids_of(10**6)], folder=tmp_path, log=tmp_path / "log.csv"
    )
    assert [step.evaluation_loss is not None for step in run.steps] == [False] * (count // 2 - 1) + [True]
    assert list(training.checkpoints(tmp_path)) == [count // 2]


def test_no_more_batches_are_drawn_than_are_trained_on():
    drawn = []

    def batches():
        for i in range(10):
            drawn.append(i)
            yield ids_of(i)

    training.train(new(), batches(), steps=3)
    assert drawn == [0, 1, 2]


def test_a_checkpoint_has_the_special_tokens(tmp_path):
    task = training.text_task("a cat sat on the mat. " * 60, masked=True, context=16, batch_size=2)
    task.new_model().save(tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert {name: settings[f"{name}_token"] for name in ("pad", "mask", "unk")} == {
        "pad": "<pad>", "mask": "<mask>", "unk": "<unknown>",
    }  # fmt: skip


def test_a_checkpoint_has_the_files_of_the_model_that_was_loaded(tmp_path):
    folder = tiny_decoder.write(tmp_path / "model")
    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    (folder / "chat_template.jinja").write_text(template)
    (folder / "generation_config.json").write_text('{"eos_token_id": 3}')
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(settings | {"eos_token": "c", "model_max_length": 12}))
    run = training.train(folder, ids_of, steps=1, folder=tmp_path / "run")
    assert (run.checkpoint / "chat_template.jinja").read_text() == template
    assert (run.checkpoint / "generation_config.json").read_text() == '{"eos_token_id": 3}'
    saved = json.loads((run.checkpoint / "tokenizer_config.json").read_text())
    assert (saved["eos_token"], saved["model_max_length"]) == ("c", 12)
    before, after = regard.load(folder), regard.load(run.checkpoint)
    assert after.tokenizer.chat_template.source == before.tokenizer.chat_template.source


def test_a_checkpoint_of_a_model_without_a_folder_has_its_template_and_ends(tmp_path):
    tokenizer = tiny_decoder.tokenizer()
    tokenizer = replace(tokenizer, chat_template=ChatTemplate("{{ messages }}", {"bos_token": "b"}))
    training.new_model({**GPT2, "eos_token_id": 5, "bos_token_id": 6}, tokenizer).save(tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert (settings["bos_token"], settings["eos_token"]) == ("b", tokenizer.backend.id_to_token(5))
    assert settings["chat_template"] == "{{ messages }}"


def test_the_architecture_is_a_class_of_transformers(tmp_path):
    for config, name in ((GPT2, "GPT2LMHeadModel"), (LLAMA, "LlamaForCausalLM")):
        new(config).save(tmp_path / name)
        assert json.loads((tmp_path / name / "config.json").read_text())["architectures"] == [name]


WIDE = {
    "gpt2": GPT2 | {"n_embd": 66, "n_positions": 80},
    "llama": LLAMA | {"hidden_size": 60, "intermediate_size": 100, "max_position_embeddings": 80},
}


@pytest.mark.parametrize("config", sweep_after(1, WIDE.values()), ids=WIDE)
def test_every_number_of_threads_gives_the_same_bits(config, same_bits):
    def trained():
        run = training.train(new(config), lambda i: ids_of(i, 20, 75), steps=3, learning_rate=1e-3)
        return [*parameters(run.model).values()]

    same_bits(trained, (1, 2, 3, 4))
