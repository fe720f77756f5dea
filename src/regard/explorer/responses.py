"""Responses of the explorer's servers: none may be embedded, kept or taken for another type."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from regard._utils.errors import RegardError
from regard.explorer.codec import json_bytes
from regard.explorer.query import Answer, internal_error

JSON = "application/json"
BYTES = "application/octet-stream"
FLOATS = "application/vnd.regard.float32"  # an array, little-endian

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def encoded(answer: Answer) -> tuple[bytes, str]:
    """Return the body of an answer to a query, and its type."""
    if isinstance(answer, bytes):
        return answer, BYTES
    if isinstance(answer, np.ndarray):
        return answer.tobytes(), FLOATS
    return json_bytes(answer), JSON


def failure(status: int, message: str) -> Response:
    """Return the answer to a query that failed."""
    return response(status, json_bytes({"error": message}), JSON)


async def parameters(request: Request, max_bytes: int) -> dict[str, Any]:
    """Return the parameters of a query, from a body of at most so many bytes."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > max_bytes:
            raise RegardError(f"the request is too large: at most {max_bytes:,} bytes")
    try:
        params = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RegardError(f"the request is not JSON: {error}") from None
    if not isinstance(params, dict):
        raise RegardError("the request must be a JSON object of parameters")
    return params


def response(status: int, body: bytes, media: str, headers: dict[str, str] | None = None) -> Response:
    """Return a response with the headers of all."""
    kind = media if media in (BYTES, FLOATS) else f"{media}; charset=utf-8"
    return Response(body, status, {**_HEADERS, **(headers or {}), "Content-Type": kind})


def refusal(status: int, body: bytes, headers: dict[str, str] | None = None) -> Response:
    """Return a response that ends the connection.

    Who is refused gets no answer to requests that were sent ahead, and keeps no place.
    """
    return response(status, body, "text/plain", {"Connection": "close", **(headers or {})})


async def not_found(request: Request, error: Exception) -> Response:  # noqa: ARG001
    """Answer a path that is none."""
    return refusal(404, b"no such page: use the address that regard printed")


async def method_not_allowed(request: Request, error: Exception) -> Response:  # noqa: ARG001
    """Answer another method of HTTP."""
    allowed = getattr(error, "headers", None) or {}
    return response(405, b"", "text/plain", {"Connection": "close", **allowed})


async def answer_fault(request: Request, error: Exception) -> Response:  # noqa: ARG001
    """Answer a request in which regard failed; uvicorn logs the traceback."""
    return failure(500, internal_error(error))
