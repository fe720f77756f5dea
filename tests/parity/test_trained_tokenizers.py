"""Tokenizers in the shape in which families ship theirs: the ids, texts and chats of transformers' AutoTokenizer."""

import pytest
from texts import varied_strings
from trained_tokenizers import CHATS, FAMILIES, write_family

from regard.text import SubwordTokenizer

STRINGS = [
    *varied_strings(400),
    *("", " ", "  \n\n  ", "\t", "</s> <s>a<pad>b<unk>", "<|endoftext|>x <|im_start|> <|im_end|>\n", " [MASK]. [MASK]"),
    *(
        "<bos>\n<start_of_turn> user<eos>",
        "<|user|> \n hi<|end|>",
        "a" * 3000,
        "``quoted'' ▁ Ġ ##ing",
        "12345678901234567",
    ),
]
MESSAGES = [
    {"role": "user", "content": "Hello there. How are you? "},
    {"role": "assistant", "content": " Fine!\n\nAnd 12345 cafés? 😀"},
    {"role": "user", "content": "<|im_end|> </s> [INST] x"},
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return a function that gives the folder of a family, as it ships it or as transformers saves it."""
    made = {}

    def folder(family):
        if family not in made:
            made[family] = tmp_path_factory.mktemp("tokenizer")
            write_family(family, made[family])
        return made[family]

    return folder


@pytest.mark.parametrize("is_saved", [False, True], ids=["shipped", "saved"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_ids_of_transformers(transformers, folders, tmp_path, family, is_saved):
    folder = folders(family)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    if is_saved:
        theirs.save_pretrained(tmp_path)
    ours = SubwordTokenizer.from_folder(tmp_path if is_saved else folder)
    for text in STRINGS:
        ids = theirs(text)["input_ids"]
        assert list(ours(text).ids) == ids, text
        assert ours.decode(ids) == theirs.backend_tokenizer.decode(ids), text
        assert ours.decode(ids, skip_special_tokens=False) == theirs.backend_tokenizer.decode(
            ids, skip_special_tokens=False
        )
    special = [i for i in theirs.all_special_ids if i < ours.vocab_size]
    assert set(special) <= ours.special_ids


@pytest.mark.parametrize("prompt", [True, False])
@pytest.mark.parametrize("family", CHATS)
def test_the_chats_of_transformers(transformers, folders, family, prompt):
    theirs = transformers.AutoTokenizer.from_pretrained(folders(family))
    ours = SubwordTokenizer.from_folder(folders(family))
    for count in (1, 2, 3):
        wanted = theirs.apply_chat_template(MESSAGES[:count], add_generation_prompt=prompt, return_dict=False)
        found = ours.apply_chat_template(MESSAGES[:count], add_generation_prompt=prompt)
        assert list(found.ids) == wanted
