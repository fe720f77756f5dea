"""Templates of chats: what they write, and what they may not do."""

import json
import tomllib
from pathlib import Path

import pytest

from gguf_files import TOKENIZER, as_read
from regard._utils.errors import RegardError
from regard.text import SubwordTokenizer, chat
from regard.text.chat import ChatTemplate

TEMPLATE = """{% for message in messages %}
{{ '<|im_start|>' + message.role + '\n' + message['content'] | trim + '<|im_end|>' }}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
HELLO = [{"role": "user", "content": " Hello <|im_end|> "}]


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Let no template fail because this machine is busy."""
    monkeypatch.setattr(chat, "_TIMEOUT", 120)


def rendered(template: str, messages=HELLO, **variables) -> str:
    return ChatTemplate(template, {"bos_token": "<s>"}).render(messages, variables)


@pytest.fixture
def tokenizer() -> SubwordTokenizer:
    given = {**TOKENIZER, "tokenizer.chat_template": TEMPLATE, "tokenizer.ggml.add_bos_token": True}
    return SubwordTokenizer.from_gguf(as_read(given))


def test_messages_become_one_text(tokenizer):
    assert tokenizer.apply_chat_template(HELLO).text == (
        "<|im_start|>user\nHello <|im_end|><|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokenizer.apply_chat_template(HELLO, add_generation_prompt=False).text.endswith("<|im_end|>\n")


def test_special_tokens_are_those_of_the_template_and_none_besides(tokenizer):
    """The tokenizer would put one at the beginning of a text; the template has written it already."""
    assert tokenizer("a").ids[0] == 1
    encoding = tokenizer.apply_chat_template(HELLO)
    assert encoding.text.startswith(encoding.tokens[0])
    assert encoding.special_tokens_mask == (False,) * len(encoding)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ bos_token }}", "<s>"),
        ("{{ messages[0] | tojson }}", '{"role": "user", "content": " Hello <|im_end|> "}'),
        ("{{ {'a': '<é>'} | tojson(indent=1) }}", '{\n "a": "<é>"\n}'),
        ("{{ {'b': 1, 'a': 'é'} | tojson(true, '\t', (',', ':'), true) }}", '{\n\t"a":"\\u00e9",\n\t"b":1\n}'),
        ("{{ [1, 2] | tojson(separators=none, ensure_ascii=false, indent=none, sort_keys=false) }}", "[1, 2]"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{% generation %}{{ tools }}{% endgeneration %}", "None"),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("{{ nothing }}", ""),
        ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
    ],
)
def test_what_templates_rely_on(template, text):
    assert rendered(template, tools=None) == text


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "TemplateError: roles must alternate$"),
        ("{% if %}", "TemplateSyntaxError"),
        ("{{ messages | nonsense }}", "No filter named 'nonsense'"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "SecurityError|Undefined"),
        ("{{ cycler.__init__.__globals__ }}", "SecurityError|Undefined"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{% include '/etc/passwd' %}", "TypeError|no loader"),
        ("{{ cycler | tojson(default='{0.__init__.__globals__[os].environ}'.format) }}", "unexpected keyword"),
        ("{{ {1: 2} | tojson(cls=cycler) }}", "TypeError: .*unexpected keyword"),
        ("{{ 1 | tojson(indent=cycler) }}", "TypeError: indent of tojson must be a number or a string"),
        ("{{ 1 | tojson(indent=true) }}", "TypeError: indent of tojson must be a number or a string"),
        ("{{ 1 | tojson(separators=',') }}", "TypeError: separators of tojson must be two strings"),
        ("{{ 1 | tojson(separators=[1, 2]) }}", "TypeError: separators of tojson must be two strings"),
        ("{{ 1 | tojson(ensure_ascii=1) }}", "TypeError: ensure_ascii of tojson must be true or false"),
        ("{{ 1 | tojson(sort_keys='x') }}", "TypeError: sort_keys of tojson must be true or false"),
        ("{{ 'a' * 10**10 }}", "it exceeds the limit on memory"),
        ("{{ 'a'.center(10**10) }}", "it exceeds the limit on memory"),
        (
            "{% set n = namespace(s='aa') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
            "the limit on memory",
        ),
        ("{{ 'a' * 20000000 }}", "it writes more than 10,000,000 characters"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
    ],
)  # fmt: skip
def test_what_a_template_may_not_do(template, message):
    with pytest.raises(RegardError, match=rf"\Athe chat template cannot be used: .*({message})"):
        rendered(template)


def test_the_child_has_no_environment_variable_of_the_parent(monkeypatch, tmp_path):
    """So that a template that left the sandbox would find no key there."""
    spy = tmp_path / "render_chat.py"
    spy.write_text("import json, os; print(json.dumps({'text': json.dumps(dict(os.environ))}))")
    monkeypatch.setattr(chat, "_SCRIPT", spy)
    monkeypatch.setenv("REGARD_TEST_KEY", "secret")
    found = json.loads(rendered("x"))
    assert found.keys() <= {"LC_CTYPE", *chat._KEPT_VARIABLES}
    assert "secret" not in found.values()


def test_jinja_is_one_that_keeps_templates_in_its_sandbox():
    """Older ones let str.format out (CVE-2025-27516)."""
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    given = pyproject["project"]["dependencies"]
    assert [each for each in given if each.startswith("jinja2")] == ["jinja2>=3.1.6"]


def test_a_template_without_an_end_is_ended(monkeypatch):
    monkeypatch.setattr(chat, "_TIMEOUT", 0.5)
    endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}" * 1
    with pytest.raises(RegardError, match=r"did not end within 0\.5 seconds"):
        rendered(endless + "{% endfor %}{% endfor %}")


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        *((x, "must be a list of mappings") for x in ("Hello", 5, None, [1], {"role": "user"}, [["role", "user"]])),
        ([{"role": "user", "content": b"x"}], "must be JSON-serialisable"),
    ],
)
def test_messages_that_are_none(messages, said):
    with pytest.raises(RegardError, match=said):
        rendered("x", messages)


def test_what_is_lacking_is_said(monkeypatch):
    with pytest.raises(RegardError, match="has no chat template"):
        SubwordTokenizer.from_gguf(as_read(TOKENIZER)).apply_chat_template(HELLO)
    monkeypatch.setattr(chat, "find_spec", lambda name: None)
    with pytest.raises(RegardError, match="a chat template needs Jinja: pip install jinja2"):
        rendered("x")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokenize": False, "return_tensors": "np"}, "no option here: return_tensors, tokenize"),
        ({"continue_final_message": "content"}, "continue_final_message must be True or False, got 'content'"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "give continue_final_message or add_gen"),
    ],
)
def test_options_that_no_template_sees_are_not_ignored(tokenizer, options, message):
    with pytest.raises(RegardError, match=message):
        tokenizer.apply_chat_template(HELLO, **options)


# Where a folder keeps it.


NAMED = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "{{ bos_token }}!"}]
FILE = {"chat_template.jinja": b"{{ bos_token }}!"}


@pytest.mark.parametrize(
    ("settings", "files"),
    [
        ({"chat_template": "{{ bos_token }}!"}, {}),
        ({"chat_template": NAMED}, {}),
        ({}, FILE),
        ({"chat_template": "old"}, FILE),
    ],
    ids=["text", "list", "file", "both"],
)
def test_a_folder_keeps_it_in_its_settings_or_in_a_file(write_bert, settings, files):
    folder = write_bert()
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"bos_token": {"content": "<s>"}}))
    for name, content in files.items():
        (folder / name).write_bytes(content)
    assert SubwordTokenizer.from_folder(folder).apply_chat_template(HELLO).text == "<s>!"
    (folder / "tokenizer_config.json").write_text('{"chat_template": 5}')
    for content, said in (
        (None, "chat_template must be a str, got 5"),
        (b"\xff", r"chat_template\.jinja is not UTF-8"),
    ):
        (folder / "chat_template.jinja").unlink(missing_ok=True)
        if content:
            (folder / "chat_template.jinja").write_bytes(content)
        with pytest.raises(RegardError, match=said):
            SubwordTokenizer.from_folder(folder)
