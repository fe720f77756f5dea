"""From the messages of a chat to the text that a model was trained on, as its own template writes it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from regard._utils.errors import RegardError

_PATIENCE = 10.0  # seconds for a template, which takes a tenth of one


@dataclass(frozen=True)
class ChatTemplate:
    """The Jinja template of a model's chats.

    Parameters
    ----------
    source
        The template.
    tokens
        What it knows as ``bos_token``, ``eos_token`` and so on.
    """

    source: str = field(repr=False)
    tokens: Mapping[str, str] = field(default_factory=dict)

    def render(self, messages: Iterable[Mapping[str, Any]], variables: Mapping[str, Any]) -> str:
        """Return the messages as one text.

        A template is a program, and comes with files that anybody may have written: it runs in Jinja's sandbox, in a
        process of its own with little memory and little time.

        Raises
        ------
        RegardError
            Jinja is not installed, the messages are not what JSON can hold, or the template is not sound, refuses the
            messages, or asks for more than it may have.
        """
        if find_spec("jinja2") is None:
            raise RegardError('a chat template needs Jinja: pip install "regard[chat]"')
        messages = list(messages) if isinstance(messages, Iterable) else messages
        if not isinstance(messages, list) or not all(isinstance(message, Mapping) for message in messages):
            raise RegardError('messages are a list of mappings: [{"role": "user", "content": "Hello"}]')
        given = {"template": self.source, "variables": {**self.tokens, **variables, "messages": messages}}
        try:
            request = json.dumps(given, default=dict).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise RegardError(f"messages and variables of a chat must be what JSON can hold: {error}") from error
        command = [sys.executable, "-P", str(Path(__file__).with_name("render_chat.py"))]
        try:
            done = subprocess.run(command, input=request, capture_output=True, timeout=_PATIENCE, check=False)
        except subprocess.TimeoutExpired:
            raise RegardError(f"the chat template does not end within {_PATIENCE:g} seconds") from None
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            raise RegardError("the chat template ended in the middle: it needs more than it may have") from None
        if "text" not in answer:
            raise RegardError(f"the chat template cannot be used: {answer['error']}")
        text: str = answer["text"]
        return text
