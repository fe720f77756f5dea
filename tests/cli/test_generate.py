"""``regard generate``: streaming, saved traces, interrupts and errors."""

import json
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

import regard
import tiny_decoder
from regard import Trace
from regard.cli import main
from regard.models.generation.sampling import Sampling

PROMPT = ["generate", "The cat"]


@pytest.fixture
def tiny(tmp_path):
    return str(tiny_decoder.write(tmp_path / "tiny"))


@pytest.mark.parametrize(
    ("typed", "options"),
    [
        ("", {}),
        (
            "--temperature 0.9 --top-k 40 --top-p 0.8 --seed 6",
            {"temperature": 0.9, "top_k": 40, "top_p": 0.8, "seed": 6},
        ),
        ("--stop X --stop [", {"stop": ["X", "["]}),
    ],
)
def test_the_text_of_the_python_interface(run, tiny, typed, options):
    expected = regard.load(tiny).generate("The cat", max_new_tokens=20, **options).text
    assert run(*PROMPT, "--model", tiny, "--max-new-tokens", "20", *typed.split()) == (0, f"{expected}\n", "")


def test_a_question_is_written_as_the_chats_of_the_model(run, tiny):
    Path(tiny, "chat_template.jinja").write_text("{{ messages[0].role }}: {{ messages[0].content }}!")
    asked = (*PROMPT, "--model", tiny, "--max-new-tokens", "9", "--chat")
    expected = regard.load(tiny).generate("user: The cat!", max_new_tokens=9).text
    assert run(*asked) == (0, f"{expected}\n", "")
    shown = json.loads(run(*asked, "--json")[1])
    assert (shown["text"], shown["prompt"]) == ("The cat", "user: The cat!")
    Path(tiny, "chat_template.jinja").unlink()
    status, _, err = run(*asked)
    assert (status, err.count("\n")) == (2, 1)
    assert "has no chat template" in err


@pytest.mark.parametrize("stop", [(), ("[",)])
def test_json_is_what_the_function_returns(run, tiny, stop):
    options = [word for each in stop for word in ("--stop", each)]
    status, out, err = run(*PROMPT, "--model", tiny, "--max-new-tokens", "9", "--json", *options)
    model = regard.load(tiny)
    done = model.generate("The cat", max_new_tokens=9, stop=stop)
    tokens = [{"id": i, "token": model.tokenizer.decode([i], skip_special_tokens=False)} for i in done.ids]
    assert (status, err) == (0, "")
    assert json.loads(out) == {
        "model": model.name,
        "text": "The cat",
        "prompt": "The cat",
        "continuation": done.text,
        "finish_reason": done.finish_reason,
        "tokens": tokens,
    }


def test_each_piece_is_printed_when_it_is_there(tiny, monkeypatch):
    seen = []

    class Output:
        def write(self, text):
            seen.append(text)

        def flush(self):
            seen.append(None)

        def isatty(self):
            return False

    monkeypatch.setattr(sys, "stdout", Output())
    assert main([*PROMPT, "--model", tiny, "--max-new-tokens", "9"]) == 0
    pieces = [*regard.load(tiny).stream("The cat", max_new_tokens=9), "\n"]
    assert [text for text in seen if text] == pieces
    assert seen.count(None) == len(pieces)


def test_the_saved_trace_is_the_map_of_the_whole_text(run, tiny, tmp_path):
    run(*PROMPT, "--model", tiny, "--max-new-tokens", "9", "-o", str(tmp_path / "t.safetensors"))
    model, trace = regard.load(tiny), Trace.load(tmp_path / "t.safetensors")
    done = model.generate("The cat", max_new_tokens=9)
    whole = Trace()
    model(np.array(done.encoding.ids), trace=whole)
    assert trace.encodings == (done.encoding,)
    np.testing.assert_allclose(trace["blocks.1.attn.weights"], whole["blocks.1.attn.weights"], rtol=0, atol=1e-6)


def test_reaching_the_context_limit_is_reported(run, tiny):
    status, out, err = run(*PROMPT, "--model", tiny)
    assert (status, err) == (0, f"regard: {tiny} has a context of at most 40 tokens\n")
    assert out == regard.load(tiny).generate("The cat", max_new_tokens=99).text + "\n"


def test_a_terminal_gets_signs_for_characters_that_would_do_something(capsys, tiny, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(Sampling, "choose", _script("a\x1b[1m\u202eb\r\n👩\u200d👩 "))
    assert main([*PROMPT, "--model", tiny, "--max-new-tokens", "23"]) == 0
    assert capsys.readouterr().out == "a␛[1m⟨U+202E⟩b␍\n👩\u200d👩 \n"


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("json_option", [(), ("--json",)])
def test_ctrl_c_saves_the_text_so_far(run, tiny, tmp_path, monkeypatch, json_option):
    script = _script("ab")

    def interrupted(*arguments):
        try:
            return script(*arguments)
        except StopIteration:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Sampling, "choose", interrupted)
    status = run(*PROMPT, "--model", tiny, "-o", str(tmp_path / "t.safetensors"), *json_option)
    assert status[0] == 130
    if json_option:
        shown = json.loads(status[1])
        assert (shown["continuation"], shown["finish_reason"], len(shown["tokens"])) == ("ab", "", 2)
    else:
        assert status[1] == "ab\n"
    assert status[2].endswith("\nregard: interrupted\n")
    kept = Trace.load(tmp_path / "t.safetensors")
    assert [encoding.text for encoding in kept.encodings] == ["The catab"]
    assert kept["blocks.1.attn.weights"].shape[-1] == 9


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_before_the_first_token_saves_nothing(run, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(Sampling, "choose", lambda *_: signal.raise_signal(signal.SIGINT))
    status = run(*PROMPT, "--model", tiny, "-o", str(tmp_path / "t.safetensors"))
    assert status == (130, "\n", "regard: interrupted\n")
    assert not (tmp_path / "t.safetensors").exists()


def _script(text):
    ids = iter(tiny_decoder.tokenizer()(text).ids)
    return lambda *_: next(ids)


def test_jinja_is_checked_before_the_model_is_loaded(run, monkeypatch):
    monkeypatch.setattr("regard.cli.commands.generate.load", lambda *_, **__: pytest.fail("a model was loaded"))
    monkeypatch.setitem(sys.modules, "jinja2", None)
    status, _, err = run("generate", "hi", "--chat")
    assert (status, err) == (2, "regard: a chat template needs Jinja: pip install jinja2\n")


@pytest.mark.smollm2
def test_a_model_that_ends_at_once_is_asked_as_it_was_trained(run):
    turns = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>"
    status, out, err = run("generate", turns, "--model", "smollm2", "--max-new-tokens", "5")
    assert (status, out.strip()) == (0, "")
    assert "smollm2 ended at once: it answers messages, --chat" in err
