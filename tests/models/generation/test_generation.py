"""Going on with a text: which token comes next, when to end, what the tokens spell; alone and side by side."""

from dataclasses import dataclass, fields

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.decoders import ByteFallback, Fuse, Metaspace as MetaspaceDecoder, Replace, Sequence, Strip
from tokenizers.models import BPE, WordLevel
from tokenizers.pre_tokenizers import Metaspace

import regard
import tiny_decoder
from regard import RegardError, Trace, edits
from regard.models import DecodingState, LanguageModel
from regard.models.generation.detokenizer import StreamingDetokenizer
from regard.models.generation.options import GenerationArguments, GenerationOptions
from regard.models.generation.sampling import Sampling
from regard.nn.kv_cache import KVCache
from regard.text import SubwordTokenizer

PROMPTS = ["The cat", "A", "sat on the mat"]


@pytest.fixture
def tiny(tmp_path):
    return regard.load(tiny_decoder.write(tmp_path / "tiny"), dtype=np.float64)


@dataclass(frozen=True, eq=False, repr=False)
class Scripted(LanguageModel):
    """Says what it was told to, whatever it is asked."""

    script: str | tuple[int, ...] = ()
    name: str = "scripted"
    config: object = None
    max_length: int = 99
    end_ids: tuple[int, ...] = (tiny_decoder.END,)
    tokenizer: object = tiny_decoder.tokenizer()

    @property
    def ids(self):
        return self.script if isinstance(self.script, tuple) else self.tokenizer(self.script).ids

    def forward(self, ids, *, mask=None, trace=None):
        return np.zeros((*ids.shape, 1))

    def prefill(self, ids, *, mask=None, trace=None):
        return self.forward(ids), DecodingState((KVCache(),), np.zeros(1))

    def decode_step(self, ids, state, *, trace=None):
        count = state.padding + 1
        return np.broadcast_to(count, (*ids.shape, 1)), DecodingState(state.caches, count)

    def head(self, hidden):
        logits = np.zeros((*hidden.shape[:-1], self.tokenizer.vocab_size))
        logits[..., self.ids[int(hidden.flat[0])]] = 1
        return logits


def alone(model, prompt, **options):
    """Return the ids that follow a prompt, each found by running the whole text so far."""
    ids = list(model.tokenizer(prompt).ids)
    first = len(ids)
    rng = np.random.default_rng(options.pop("seed", None))
    count = options.pop("max_new_tokens")
    sampling = Sampling(**options, seed=1 if options else None)
    while len(ids) - first < count:
        ids.append(sampling.choose(model(np.array(ids)).logits[0, -1], rng))
        if ids[-1] in model.end_ids:
            break
    return ids[first:]


@pytest.mark.parametrize("options", [{}, {"temperature": 0.8, "top_k": 30, "top_p": 0.9, "seed": 5}], ids=str)
def test_the_cache_changes_nothing_and_neither_does_the_batch(tiny, options):
    expected = [alone(tiny, prompt, max_new_tokens=20, **options) for prompt in PROMPTS]
    batch = tiny.generate(PROMPTS, max_new_tokens=20, **options)
    assert [list(one.ids) for one in batch] == expected
    for prompt, ids in zip(PROMPTS, expected, strict=True):
        one = tiny.generate(prompt, max_new_tokens=20, **options)
        assert list(one.ids) == ids
        assert one.prompt.text == prompt


@pytest.mark.parametrize(
    "text", ["plain text", "naïve 猫 café", "😀 👩‍👩‍👧‍👦 🏳️‍🌈", "ends in 猫", "e\u0301 \u200d", "\ufffd kept \ufffd"]
)
def test_pieces_are_whole_characters_and_join_to_the_text(text):
    model = Scripted(script=text)
    count = len(model.ids)
    stream = model.stream("go", max_new_tokens=count)
    pieces = list(stream)
    assert "".join(pieces) == text
    assert text.count("\ufffd") == sum(piece.count("\ufffd") for piece in pieces)
    assert len(pieces) >= len(text) - 2 * text.count("\ufffd")  # each as soon as it is there
    assert stream.generated.text == text == model.generate("go", max_new_tokens=count).text


@pytest.mark.parametrize("seed", range(100))
def test_bytes_in_any_order_join_to_what_they_decode_to(seed):
    """Whole characters, parts of them in odd places, the end of a text in the midst."""
    rng = np.random.default_rng(seed)
    ids = [*Scripted(script="a猫é😀").ids, tiny_decoder.END]
    ids = [int(i) for i in rng.choice(ids, 30)]
    model = Scripted(script=(*ids, *Scripted(script="!").ids), end_ids=())
    pieces = list(model.stream("go", max_new_tokens=31))
    assert "".join(pieces) == model.tokenizer.decode(model.ids)
    assert model.generate("go", max_new_tokens=31).encoding.text == "go" + "".join(pieces)


def test_the_space_before_a_first_word_is_kept():
    """A tokenizer of the kind that Llama 2 has leaves out the first space of whatever it decodes."""
    backend = Tokenizer(WordLevel({piece: i for i, piece in enumerate(("▁the", "▁cat", "s", "▁sat", "?"))}, "?"))
    backend.pre_tokenizer, backend.decoder = Metaspace(), MetaspaceDecoder()
    tokenizer = SubwordTokenizer(backend)
    assert tokenizer.decode([1, 2]) == "cats"
    model = Scripted(script=(1, 2, 3), end_ids=(), tokenizer=tokenizer)
    assert list(model.stream("the", max_new_tokens=3)) == [" cat", "s", " sat"]
    whole = model.generate("the", max_new_tokens=3).encoding
    assert whole.text == "the cats sat"
    assert [word for word, _ in whole.word_groups()] == ["the", "cats", "sat"]


@pytest.fixture(scope="module")
def fallback():
    """Return a tokenizer of the kind that Llama 2 and Gemma have: bytes stand for what has no piece of its own."""
    pieces = ["<unk>", "▁a", "b", *(f"<0x{i:02X}>" for i in range(256))]
    backend = Tokenizer(BPE({piece: i for i, piece in enumerate(pieces)}, [], unk_token="<unk>", byte_fallback=True))
    backend.decoder = Sequence([Replace("▁", " "), ByteFallback(), Fuse(), Strip(" ", 1, 0)])
    return SubwordTokenizer(backend)


def in_bytes(text):
    return tuple(3 + byte for byte in text.encode())


@pytest.mark.parametrize(
    ("before", "ids", "text"),
    [
        (in_bytes("猫猫猫"), (*in_bytes("猫"), 2, 2), "猫bb"),
        (in_bytes("猫猫猫é"), (*in_bytes("犬"), 2), "犬b"),
        ((1, *in_bytes("😀😀😀")), (*in_bytes("😀é"), 1, 2), "😀é ab"),
        ((1, *in_bytes("猫")[:2]), (in_bytes("猫")[2], 2, 2), "猫bb"),
        ((1, *in_bytes("猫")[:1]), (*in_bytes("猫")[1:], 1), "猫 a"),
        ((1,), (*in_bytes("猫"), *in_bytes("犬")[:2]), "猫\ufffd\ufffd"),
        ((1,), (*in_bytes("猫"), *in_bytes("犬")[:2], 2), "猫\ufffd\ufffdb"),
    ],
)
def test_characters_in_bytes_are_spelled_whatever_stands_before(fallback, before, ids, text):
    model = Scripted(script=ids, end_ids=(), tokenizer=fallback)
    assert model.generate(before, max_new_tokens=len(ids)).text == text


def test_a_generated_text_is_cleaned_up_as_it_comes():
    words = ["<unk>", "It", "is", "n't", ".", ",", "new", "'", "s", "So"]
    backend = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer = SubwordTokenizer(backend, cleans_up=True)
    model = Scripted(script=(2, 3, 6, 5, 1, 7, 8, 6, 4), end_ids=(), tokenizer=tokenizer)
    stream = model.stream((9,), max_new_tokens=9)
    pieces = list(stream)
    assert "".join(pieces) == stream.generated.text == " isn't new, It's new."
    assert pieces == [" is", "n't new", ", It", "'s new", "."]
    assert stream.generated.encoding.text.endswith("is n't new , It ' s new .")


def test_special_tokens_cost_no_more_when_there_are_many(monkeypatch):
    decoded = []
    tokenizer = tiny_decoder.tokenizer()
    decode = SubwordTokenizer.decode
    monkeypatch.setattr(
        SubwordTokenizer, "decode", lambda self, ids, **_: decoded.append(len(ids)) or decode(self, ids)
    )
    detokenizer = StreamingDetokenizer(tokenizer, [5])
    assert [detokenizer.add(tiny_decoder.END) for _ in range(50)] == [""] * 50
    assert detokenizer.flush() == ""
    assert max(decoded) <= 1


@pytest.mark.parametrize(
    ("stop", "text", "pieces"),
    [
        ("\n\n", "one\ntwo", ["o", "n", "e", "\nt", "w", "o"]),
        (["xx", "two"], "one\n", ["o", "n", "e", "\n"]),
        (["e\nt", "ne"], "o", ["o"]),
        (["\nt", "e\nt"], "on", ["o", "n"]),  # of two that end together the longer began first
        (ord("w") - 33, "one\nt", ["o", "n", "e", "\n", "t"]),
        (["never", 250], "one\ntwo\n\nthree", ["o", "ne\n", *"two\n\nthree"]),
    ],
)
def test_a_text_ends_before_what_it_is_to_stop_at(stop, text, pieces):
    model = Scripted(script="one\ntwo\n\nthree")
    stream = model.stream("go", stop=stop, max_new_tokens=14)
    assert list(stream) == pieces
    assert stream.generated.text == text
    assert stream.generated.finish_reason == ("length" if text.endswith("three") else "stop")


def test_the_end_of_a_text_is_among_the_ids_and_not_in_the_text():
    done = Scripted(script=(*Scripted(script="ok").ids, tiny_decoder.END)).generate("go")
    assert (done.text, done.ids[-1], done.finish_reason) == ("ok", tiny_decoder.END, "eos")
    assert done.encoding.tokens[-1] == "<|end|>"
    assert done.encoding.special_tokens_mask == (False,) * 4 + (True,)


def test_the_whole_text_has_words_and_spans():
    done = Scripted(script=" né cat, 猫").generate("one", max_new_tokens=13)
    whole = done.encoding
    assert whole.text == "one né cat, 猫"
    assert [word for word, _ in whole.word_groups()] == ["one", "né", "cat", ",", "猫"]
    assert whole.offsets[-3:] == ((12, 13),) * 3
    joined = Scripted(script="s sat").generate("cat", max_new_tokens=5).encoding
    assert [word for word, _ in joined.word_groups()] == ["cats", "sat"]


def test_it_ends_where_the_model_can_look_at_no_more(tiny):
    prompt = "x" * 30
    one = tiny.generate(prompt, max_new_tokens=99)
    assert (len(one.ids), one.finish_reason) == (10, "max_context")
    both = tiny.generate(["y" * 5, prompt], max_new_tokens=99)
    assert [len(generated.ids) for generated in both] == [35, 10]
    with pytest.raises(RegardError, match=r"the prompt has 40 tokens, the most that .*tiny accepts"):
        tiny.generate("x" * 40)
    with pytest.raises(RegardError, match=r"41 tokens, but .*tiny accepts at most 40"):
        tiny.generate("x" * 41)


def test_a_trace_records_the_whole_text_as_if_run_at_once(tiny):
    trace, whole = Trace(), Trace()
    batch = tiny.generate(PROMPTS, max_new_tokens=6, trace=trace)
    assert trace.encodings == tuple(one.encoding for one in batch)
    tiny([one.encoding for one in batch], trace=whole)
    assert trace.names() == whole.names()
    for name in whole:
        np.testing.assert_array_equal(trace[name], whole[name])
    assert trace["blocks.1.attn.weights"].shape == (3, 6, 20, 20)


def test_a_trace_edits_every_step(tiny):
    def silence(context):
        context[:, 2] = 0
        return context

    edited = tiny.generate("The cat", max_new_tokens=12, trace=Trace(only=(), edit={"blocks.*.attn.context": silence}))
    ids = list(tiny.tokenizer("The cat").ids)
    for token in edited.ids:
        logits = tiny(np.array(ids), edit={"blocks.*.attn.context": silence}).logits[0, -1]
        assert token == logits.argmax()
        ids.append(token)
    assert edited.ids != tiny.generate("The cat", max_new_tokens=12).ids
    with pytest.raises(RegardError, match=r"'blocks\.9\.output' \(did you mean"):
        tiny.generate("The cat", max_new_tokens=1, trace=Trace(edit={"blocks.9.output": silence}))


def test_pieces_of_a_batch_are_told_as_they_come(tiny):
    told = {0: "", 1: "", 2: ""}

    def note(number, piece):
        assert piece
        told[number] += piece

    batch = tiny.generate(PROMPTS, max_new_tokens=12, on_text=note)
    assert list(told.values()) == [one.text for one in batch]


def test_an_interrupted_stream_has_what_came_so_far():
    stream = Scripted(script="abcdef").stream("go", max_new_tokens=6)
    assert [next(stream), next(stream)] == ["a", "b"]
    assert (stream.generated.text, stream.generated.finish_reason) == ("ab", "")


def test_a_seed_draws_the_same_again_and_another_others(tiny):
    options = {"temperature": 1.5, "max_new_tokens": 20}
    first = tiny.generate("The cat", seed=3, **options).ids
    assert first == tiny.generate("The cat", seed=3, **options).ids
    assert first != tiny.generate("The cat", seed=4, **options).ids
    assert tiny.generate("The cat", **options).ids != tiny.generate("The cat", **options).ids


def test_draws_follow_the_softmax():
    logits = np.log([0.5, 0.3, 0.15, 0.05])
    rng = np.random.default_rng(0)
    drawn = np.bincount([Sampling(1.0).choose(logits, rng) for _ in range(20_000)], minlength=4) / 20_000
    np.testing.assert_allclose(drawn, [0.5, 0.3, 0.15, 0.05], atol=0.015)  # four standard deviations


def test_only_the_last_position_is_scored(tiny, monkeypatch):
    seen = []
    head = type(tiny).head
    monkeypatch.setattr(type(tiny), "head", lambda self, hidden: seen.append(hidden.shape) or head(self, hidden))
    tiny.generate("The cat", max_new_tokens=3)
    assert seen == [(1, 12)] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens must be a whole number of at least 1, got 0"),
        ({"temperature": -1}, "temperature must be 0 or more, got -1"),
        ({"temperature": float("nan")}, "temperature must be a finite number"),
        ({"top_k": 3}, "temperature 0 decodes greedily, so top_k would change nothing; give a temperature above 0 too"),
        ({"top_p": 0.5, "seed": 1}, "top_p and seed would change nothing"),
        ({"temperature": 1, "top_k": 0}, "top_k must be a whole number of at least 1"),
        ({"temperature": 1, "top_p": 0}, "top_p must be above 0 and at most 1, got 0"),
        ({"temperature": 1, "top_p": 1.1}, "top_p must be above 0 and at most 1, got 1.1"),
        ({"temperature": 1, "seed": -1}, "seed must be a whole number of at least 0"),
        ({"stop": ""}, "stop must be a non-empty string, a token id, or a sequence of them, got ''"),
        ({"stop": ["a", 1.5]}, "stop must be .*, got 1.5"),
        ({"stop": None}, "stop must be .*, got None"),
    ],
)
def test_arguments_that_cannot_be(tiny, options, message):
    with pytest.raises(RegardError, match=message):
        tiny.generate("hi", **options)


def test_a_batch_can_be_read_more_than_once_and_is_not_streamed(tiny):
    with pytest.raises(RegardError, match="a batch must be a sequence of texts, got an iterator; give a list"):
        tiny.generate(iter(PROMPTS))
    with pytest.raises(RegardError, match="stream takes one text; for a batch use generate with on_text"):
        tiny.stream(["a", "b"])
    assert len(tiny.generate(tuple(PROMPTS), max_new_tokens=2)) == 3


def test_next_to_no_temperature_takes_the_likeliest():
    tokens, shares = Sampling(5e-324).probabilities(np.array([1.0, 3.0, 2.0], np.float32))
    assert (tokens[0], shares.tolist()) == (1, [1, 0, 0])


def test_scores_that_are_not_finite_are_told():
    with pytest.raises(RegardError, match="logits of the next token are not finite"):
        Sampling().choose(np.array([1.0, np.nan]), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("generation", "message"),
    [
        ("{", r"generation_config\.json is not valid JSON"),
        ("[]", "must hold a JSON object, got list"),
        ('{"eos_token_id": "x"}', "must be an id or a list of ids, got 'x'"),
        ('{"eos_token_id": [true]}', "must be an id or a list of ids, got"),
        ('{"forced_bos_token_id": -1}', "forced_bos_token_id of .* must be an id or a list of ids, got -1"),
    ],
)
def test_a_damaged_generation_config_is_told(tmp_path, generation, message):
    folder = tiny_decoder.write(tmp_path / "tiny")
    (folder / "generation_config.json").write_text(generation)
    with pytest.raises(RegardError, match=message):
        regard.load(folder)


def test_the_keywords_of_generate_are_the_fields_of_the_options():
    assert set(GenerationArguments.__annotations__) == {field.name for field in fields(GenerationOptions)}


def test_steering_adds_to_every_step_of_a_generation(tiny):
    """Greedy tokens of whole runs with the same edit, one after the other."""
    width = tiny.token_embedding.weight.shape[1]
    vector = 40 * np.random.default_rng(1).standard_normal(width)
    edit = edits.add(vector, "blocks.0.output")
    ids = [5, 6, 7]
    for _ in range(6):
        ids.append(int(tiny(ids, edit=edit).logits[0, -1].argmax()))
    plain = tiny.generate([5, 6, 7], max_new_tokens=6)
    steered = tiny.generate([5, 6, 7], max_new_tokens=6, edit=edit)
    assert list(steered.ids) == ids[3 : 3 + len(steered.ids)]
    assert steered.ids != plain.ids
    assert tiny.generate([5, 6, 7], max_new_tokens=6, trace=Trace(only=(), edit=edit)).ids == steered.ids
    stream = tiny.stream([5, 6, 7], max_new_tokens=6, edit=edit)
    list(stream)
    assert stream.generated.ids == steered.ids


def test_an_edit_of_no_step_is_an_error_of_a_generation(tiny):
    edit = edits.add(np.zeros(3), "blocks.77.output")
    with pytest.raises(RegardError, match=r"edit= matched no step of this run: 'blocks.77.output'"):
        tiny.generate([5, 6, 7], max_new_tokens=2, edit=edit)
    with pytest.raises(RegardError, match=r"edit= matched no step of this run: 'blocks.77.output'"):
        list(tiny.stream([5, 6, 7], max_new_tokens=2, edit=edit))
    with pytest.raises(RegardError, match="both given"):
        tiny.generate([5, 6, 7], trace=Trace(), edit=edit)
