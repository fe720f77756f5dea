"""A Zarr store that is read within limits: regular files alone, and no more bytes than a map has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import Any

from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.storage import FsspecStore, LocalStore, WrapperStore

from regard._utils.errors import RegardError
from regard._utils.files import read_file

_MAX_METADATA_BYTES = 1 << 20  # a map's are a kilobyte
_ZSTD = b"\x28\xb5\x2f\xfd"


def open_store(name: str, limit: int) -> BoundedStore:
    """Return the store of a folder or URL, to be read; `limit` is of the bytes of a chunk, stored and in memory."""
    local = name.removeprefix("file://")
    is_local = "://" not in local and "::" not in local
    store = LocalStore(Path(local), read_only=True) if is_local else FsspecStore.from_url(name, read_only=True)
    return BoundedStore(store, limit)


class BoundedStore(WrapperStore[Any]):
    """A store of which each value that is too large is an error."""

    def __init__(self, store: Any, limit: int) -> None:
        super().__init__(store)
        self._limit = limit

    def _with_store(self, store: Any) -> BoundedStore:
        return BoundedStore(store, self._limit)

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Return a value, or a part of it; None if there is none."""
        is_metadata = key.endswith("zarr.json")
        limit = _MAX_METADATA_BYTES if is_metadata else self._limit
        if isinstance(self._store, LocalStore):
            content = await asyncio.to_thread(read_file, self._store.root / key, limit)
        else:
            buffer = await self._store.get(key, prototype, RangeByteRequest(0, limit + 1))
            content = None if buffer is None else buffer.to_bytes()
        if content is None:
            return None
        if len(content) > limit:
            raise RegardError(f"{key} has more than the limit of {limit} bytes")
        if not is_metadata and content.startswith(_ZSTD) and not 0 <= _unpacked_size(content) <= limit:
            raise RegardError(f"{key} expands to more than the limit of {limit} bytes, or does not say to how many")
        return prototype.buffer.from_bytes(content[_part(byte_range, len(content))])

    async def get_partial_values(self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]) -> list[Any]:
        """Return parts of values."""
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def _get_many(self, requests: Iterable[tuple[str, Any, Any]]) -> AsyncGenerator[tuple[str, Any], None]:
        async for item in Store._get_many(self, requests):  # one by one, through `get`
            yield item


def _part(byte_range: Any, size: int) -> slice:
    if isinstance(byte_range, RangeByteRequest):
        return slice(byte_range.start, byte_range.end)
    if isinstance(byte_range, OffsetByteRequest):
        return slice(byte_range.offset, None)
    return slice(max(0, size - byte_range.suffix), None) if isinstance(byte_range, SuffixByteRequest) else slice(None)


def _unpacked_size(content: bytes) -> int:
    """Return the size that the header of a Zstandard frame gives, −1 if it gives none (RFC 8878, section 3.1.1.1)."""
    descriptor = content[4] if len(content) > 4 else 0
    is_single = descriptor >> 5 & 1
    start = 5 + (1 - is_single) + (0, 1, 2, 4)[descriptor & 3]
    length = (is_single, 2, 4, 8)[descriptor >> 6]
    field = content[start : start + length]
    if not length or len(field) < length:
        return -1
    return int.from_bytes(field, "little") + 256 * (length == 2)
