"""Chats as transformers' apply_chat_template writes them: random messages by templates that read each variable."""

import json
import random

import pytest
from tokenizers import Tokenizer, models

from regard._utils.errors import RegardError
from regard.text import SubwordTokenizer

PIECES = (
    "{{ tools is none }}{{ tools is defined }}{% if tools %}{{ tools | tojson }}{% endif %}",
    "{{ documents is none }}{% for d in documents or [] %}[{{ d.title }}]{% endfor %}",
    "{{ bos_token }}|{{ eos_token }}|{{ unk_token }}|{{ pad_token }}|{{ pad_token is defined }}|{{ image_token }}",
    "{{ add_generation_prompt }}{{ enable_thinking is defined }}{{ enable_thinking }}",
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}",
    "{% for m in messages %}{% if m.content is string %}{{ m['content'] | trim }}\n{% endif %}{% endfor %}",
    "{% for m in messages %}{{ m | tojson }}{% endfor %}",
    "{% for m in messages %}{{ m.keys() | sort | join(',') }};{% endfor %}",
    "{% for m in messages %}({{ m.reasoning_content }}|{{ m.thinking }}|{{ m.reasoning }}){% endfor %}",
    "{% for m in messages %}{% if m.tool_calls is defined %}{{ m.tool_calls[0].name }}{% endif %}{% endfor %}",
    "{% for m in messages %}{% for c in m.content if c is mapping %}{{ c.text }}{% endfor %}{% endfor %}",
)
TEXTS = ("", " ", "yes", " Hi\n", "é 中 \U0001f600", "</s>", "a|b <user>", None)
SETTINGS = (  # of tokenizer_config.json, and special_tokens_map.json
    ({}, {}),
    ({"bos_token": "<b>", "eos_token": {"content": "<e>", "lstrip": False, "__type": "AddedToken"}}, {}),
    ({"bos_token": None}, {}),
    ({"bos_token": "<b>"}, {"bos_token": "<s>", "pad_token": {"content": "<p>", "lstrip": False}}),
    ({"extra_special_tokens": {"image_token": "<img>"}}, {}),
    ({"image_token": "<img>", "additional_special_tokens": ["<a>"]}, {"eos_token": "<e>"}),
    ({"extra_special_tokens": {"image_token": "<img>"}}, {"extra_special_tokens": {"image_token": "<i>"}}),
    ({"added_tokens_decoder": {"0": {"content": "<s>", "special": True}}}, {"bos_token": "</s>"}),
)
CLASSES = {  # by the type of the model
    **{"llama": "LlamaTokenizer", "gpt2": "GPT2Tokenizer", "qwen2": "Qwen2Tokenizer", "gemma2": "GemmaTokenizer"},
    "smollm3": "PreTrainedTokenizerFast",
}


def both(transformers, folder, model_type, template, settings=SETTINGS[0]):
    """Return transformers' tokenizer and regard's of a folder with a template."""
    folder.mkdir()
    vocabulary = {token: i for i, token in enumerate(["<s>", "</s>", "<unk>", "<pad>", "<mask>", "a", "▁"])}
    Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>")).save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": CLASSES[model_type], "chat_template": template, **settings[0]}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "special_tokens_map.json").write_text(json.dumps(settings[1]))
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return transformers.AutoTokenizer.from_pretrained(folder), SubwordTokenizer.from_folder(folder)


def random_message(rng: random.Random) -> dict:
    message = {"role": rng.choice(["system", "user", "assistant", "tool"]), "content": rng.choice(TEXTS)}
    if rng.random() < 0.2:
        message["content"] = [{"type": "text", "text": rng.choice(TEXTS)}, {"type": "image", "url": None}]
    for name in ("reasoning_content", "thinking", "reasoning", "name"):
        if rng.random() < 0.25:
            message[name] = rng.choice(TEXTS)
    if rng.random() < 0.25:
        message["tool_calls"] = rng.choice([None, [{"name": "f", "arguments": {"x": None}}]])
    return message


@pytest.mark.parametrize("seed", range(24))
def test_random_chats(transformers, tmp_path, seed):
    rng = random.Random(seed)
    template = "\n".join(rng.sample(PIECES, 6))
    model_type, settings = rng.choice([*CLASSES]), SETTINGS[seed % len(SETTINGS)]
    theirs, ours = both(transformers, tmp_path / "model", model_type, template, settings)
    for _ in range(2):
        messages = [random_message(rng) for _ in range(rng.randint(1, 4))]
        options = {
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
            "documents": [{"title": "T", "text": "x"}],
            "enable_thinking": rng.choice([True, False, None]),
        }
        options = {name: value for name, value in options.items() if rng.random() < 0.4}
        options["add_generation_prompt"] = rng.random() < 0.5
        wanted = theirs.apply_chat_template(messages, tokenize=False, **options)
        assert ours.apply_chat_template(messages, **options).text == wanted


CONTINUED = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}",
    "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}{{ add_generation_prompt }}",
    "{% for m in messages %}{% for c in m.content %}{{ c.text }}{% endfor %}</>{% endfor %}",
    "{{ messages[0].content }}",
)


@pytest.mark.parametrize("template", CONTINUED)
def test_the_final_message_is_continued(transformers, tmp_path, template):
    theirs, ours = both(transformers, tmp_path / "model", "llama", template)
    contents = [
        *("yes", " yes \n", "", [{"type": "text", "text": "one "}, {"type": "image"}], [{"type": "image"}], [], None),
        [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
    ]
    outcomes = set()
    for content in contents:
        messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": content}]
        given = json.dumps(messages)
        try:
            wanted = theirs.apply_chat_template(messages, tokenize=False, continue_final_message=True)
        except ValueError:
            with pytest.raises(RegardError, match="continue"):
                ours.apply_chat_template(messages, continue_final_message=True)
            outcomes.add("refused")
        else:
            assert ours.apply_chat_template(messages, continue_final_message=True).text == wanted
            outcomes.add("continued")
        assert json.dumps(messages) == given
    assert outcomes == ({"refused"} if template == CONTINUED[-1] else {"refused", "continued"})
