"""Shared by the tests of Dask: arrays in chunks, texts, their files, and what must hold of a folder at the end."""

import random
import threading
import time

import numpy as np

WORDS = "the of and to in a is that it was for on are as with his they at be this from have or by one had not".split()


def chunked(x, rng):
    """Return a dask array with random chunks along every axis."""
    from dask import array

    def sizes(length):
        cuts = sorted({0, length, *rng.integers(0, length + 1, 2).tolist()})
        return tuple(np.diff(cuts).tolist()) or (0,)

    return array.from_array(x, chunks=tuple(sizes(length) for length in x.shape))


def sentences(count, seed=0, longest=40):
    draw = random.Random(seed)
    return [" ".join(draw.choice(WORDS) for _ in range(draw.randint(3, longest))) + "." for _ in range(count)]


def parts(folder):
    """Return the bytes of each partition by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*.parquet"))}


class Watcher:
    """Notes when each partition appeared, and calls `action` once `after` of them have."""

    def __init__(self, folder, after=None, action=None):
        self._folder, self._after, self._action = folder, after, action
        self.seen, self.errors = {}, []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()
        self._note()
        assert not self.errors

    def _watch(self):
        while not self._end.is_set():
            self._note()
            if self._action is not None and len(self.seen) >= self._after:
                action, self._action = self._action, None
                try:
                    action()
                except Exception as error:
                    self.errors.append(error)
            time.sleep(0.005)

    def _note(self):
        for path in self._folder.glob("part-*.parquet"):
            status = path.stat()
            assert self.seen.setdefault(path.name, status.st_ino) == status.st_ino, f"{path} was written twice"
