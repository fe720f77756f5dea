"""The pretrained SmolLM2, found by its name. tests/parity holds its numbers against transformers."""

import pytest

pytestmark = pytest.mark.smollm2


def test_it_knows_what_comes_next(our_smollm2):
    prompt = "The capital of France is"
    assert our_smollm2.generate(prompt, max_new_tokens=2).text == " Paris."


def test_it_answers(our_smollm2):
    question = [{"role": "user", "content": "What is the capital of France?"}]
    answer = our_smollm2.generate(our_smollm2.tokenizer.apply_chat_template(question), max_new_tokens=16)
    assert answer.text == "The capital of France is Paris."
    assert answer.ids[-1] == our_smollm2.tokenizer.token_to_id("<|im_end|>")


def test_its_sizes_are_those_of_the_table(our_smollm2):
    from regard.models.hub.registry import KNOWN

    known, config = KNOWN["smollm2"], our_smollm2.config
    assert (config.num_layers, config.num_heads, config.num_kv_heads) == (known.layers, known.heads, 3)


def test_texts_are_cut_as_llama_cpp_cuts_them(our_smollm2):
    """The ids are llama.cpp's; digits stand apart, and spaces before a digit stay together."""
    ids = our_smollm2.tokenizer("Hello   12 worlds, 3.5 猫").ids
    assert ids == (19556, 333, 33, 34, 10094, 28, 216, 35, 30, 37, 27709, 230, 121)
