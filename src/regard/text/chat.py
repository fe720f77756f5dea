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

    def render(self, messages: Iterable[Mapping[str, Any]], variables: Mapping[str, Any]) -> str:
        """Return the messages as one text.

        A template is untrusted code: it runs in Jinja's sandbox, in a process of its own with limited memory and
        time.

        Raises
        ------
        RegardError
            Jinja is not installed, the messages cannot be JSON, or the template is invalid, rejects the messages or
            exceeds its limits.
        """
        require_jinja()
        source = self.others.get("tool_use", self.source) if variables.get("tools") is not None else self.source
        if source is None:
            names = escape(join_names(sorted(self.others)))
            raise RegardError(f"the model has chat templates by name ({names}) and none for every chat: give the text")
        messages = list(messages) if isinstance(messages, Iterable) else messages
        if not isinstance(messages, list) or not all(isinstance(message, Mapping) for message in messages):
            raise RegardError('messages must be a list of mappings: [{"role": "user", "content": "Hello"}]')
        fields = {"template": source, "variables": {**self.tokens, **variables, "messages": messages}}
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
