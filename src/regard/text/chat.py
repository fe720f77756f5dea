"""Chat templates: from messages to the text that a model was trained on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from regard._utils.errors import RegardError
from regard._utils.validation import escape
from regard.text.words import join_names

_TIMEOUT = 10.0  # seconds; a template takes 0.1
_SCRIPT = Path(__file__).with_name("render_chat.py")
# What Python needs to start, and the time zone. No other variable reaches a template: it may hold a key.
_KEPT_VARIABLES = ("PYTHONHOME", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TZ")
# Options of transformers' apply_chat_template that a template never sees.
_NOT_VARIABLES = (
    *("chat_template", "max_length", "padding", "return_assistant_tokens_mask", "return_dict", "return_tensors"),
    *("sanitize_control_tokens", "tokenize", "tokenizer_kwargs", "truncation"),
)
_ALWAYS_THERE = {"tools": None, "documents": None}  # variables that templates compare with none
_REASONING = ("reasoning_content", "thinking", "reasoning")  # names of one field of a message
_CONTINUED = "CONTINUED-HERE "  # where a final message ends; the space tells whether the template trims it


def require_jinja() -> None:
    """Check that Jinja is installed, without importing it; an error says how to install it."""
    if find_spec("jinja2") is None:
        raise RegardError("a chat template needs Jinja: pip install jinja2")


@dataclass(frozen=True)
class ChatTemplate:
    """The Jinja chat template of a model."""

    source: str | None = field(repr=False)  # None: it has others alone
    tokens: Mapping[str, str] = field(default_factory=dict)  # the variables bos_token, eos_token and so on
    others: Mapping[str, str] = field(default_factory=dict, repr=False)  # by name; tool_use is for chats with tools

    def render(
        self, messages: Iterable[Mapping[str, Any]], variables: Mapping[str, Any], *, continue_final: bool = False
    ) -> str:
        """Return the messages as one text, which with `continue_final` ends where the final message does.

        A template is untrusted code: it runs in Jinja's sandbox, in a process of its own with limited memory and
        time.

        Raises
        ------
        RegardError
            Jinja is not installed, the messages cannot be JSON, the final message cannot be continued, or the template
            is invalid, rejects the messages or exceeds its limits.
        """
        require_jinja()
        if unknown := [name for name in _NOT_VARIABLES if name in variables]:
            raise RegardError(f"not a variable of a chat template, and no option here: {join_names(unknown)}")
        source = self.others.get("tool_use", self.source) if variables.get("tools") is not None else self.source
        if source is None:
            names = escape(join_names(sorted(self.others)))
            raise RegardError(f"the model has chat templates by name ({names}) and none for every chat: give the text")
        messages = list(messages) if isinstance(messages, Iterable) else messages
        if not isinstance(messages, list) or not all(isinstance(message, Mapping) for message in messages):
            raise RegardError('messages must be a list of mappings: [{"role": "user", "content": "Hello"}]')
        normalized = [_as_templates_expect(message) for message in messages]
        final = _mark_end(normalized) if continue_final else None
        text = _run(source, {**_ALWAYS_THERE, **self.tokens, **variables, "messages": normalized})
        return text if final is None else _cut_at_end(text, final)


def _as_templates_expect(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message without keys of value None, and with its reasoning under the names that templates read."""
    message = {key: value for key, value in message.items() if value is not None}
    reasoning = next((message[name] for name in _REASONING if name in message), None)
    return message if reasoning is None else {"thinking": reasoning, **message, "reasoning_content": reasoning}


def _mark_end(messages: list[dict[str, Any]]) -> str:
    """Put a mark after the final message, in place; return its text."""
    content = messages[-1].get("content") if messages else None
    if isinstance(content, str):
        messages[-1]["content"] = content + _CONTINUED
        return content
    parts = list(content) if isinstance(content, list | tuple) else []
    for i in reversed(range(len(parts))):
        if isinstance(parts[i], Mapping) and isinstance(text := parts[i].get("text"), str):
            parts[i] = {**parts[i], "text": text + _CONTINUED}
            messages[-1]["content"] = parts
            return text
    raise RegardError("continue_final_message needs a final message with text to continue")


def _cut_at_end(text: str, final: str) -> str:
    """Return `text` up to the mark after the final message, without spaces before it if the template trims them."""
    before, mark, after = text.rpartition(_CONTINUED.rstrip())
    if not mark or final.strip() not in text:
        raise RegardError("the chat template does not write the final message as it is, so it cannot be continued")
    return before if after.startswith(" ") else before.rstrip()


def _run(source: str, variables: Mapping[str, Any]) -> str:
    """Render a template in a process of its own."""
    fields = {"template": source, "variables": variables}
    try:
        request = json.dumps(fields, default=dict).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise RegardError(f"messages and variables of a chat must be JSON-serialisable: {error}") from error
    command = [sys.executable, "-P", str(_SCRIPT)]
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    try:
        done = subprocess.run(command, input=request, capture_output=True, timeout=_TIMEOUT, check=False, env=kept)
    except subprocess.TimeoutExpired:
        raise RegardError(f"the chat template did not end within {_TIMEOUT:g} seconds") from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise RegardError("the chat template was stopped: it exceeds the limits on memory or time") from None
    if "text" not in answer:
        raise RegardError(f"the chat template cannot be used: {answer['error']}")
    text: str = answer["text"]
    return text
