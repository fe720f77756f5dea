"""The kernel among the libraries that threadpoolctl limits. Imported only where threadpoolctl is there."""

from __future__ import annotations

import threadpoolctl

from regard._version import __version__


class KernelController(threadpoolctl.LibController):  # type: ignore[misc, unused-ignore]
    """Tells threadpoolctl how many threads the kernel uses, and lets it say how many."""

    user_api = "regard"
    internal_api = "regard"
    filename_prefixes = ("_kernel",)
    check_symbols = ("regard_num_threads", "regard_set_num_threads")  # other packages have a _native of their own

    def get_num_threads(self) -> int:
        """Return how many threads the kernel uses."""
        return int(self.dynlib.regard_num_threads())

    def set_num_threads(self, num_threads: int) -> None:
        """Let the kernel use `num_threads` threads."""
        self.dynlib.regard_set_num_threads(num_threads)

    def get_version(self) -> str:
        """Return the version of the package."""
        return __version__


def register() -> None:
    """Let threadpoolctl know of the kernel, if it is one that can be told."""
    if hasattr(threadpoolctl, "register"):
        threadpoolctl.register(KernelController)
