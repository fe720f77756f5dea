"""Registration of the kernel with threadpoolctl; imported only if threadpoolctl is loaded."""

from __future__ import annotations

import threadpoolctl

from regard._version import __version__


class KernelController(threadpoolctl.LibController):  # type: ignore[misc, unused-ignore]
    """Controls the number of threads of the kernel."""

    user_api = "regard"
    internal_api = "regard"
    filename_prefixes = ("_kernel",)
    check_symbols = ("regard_num_threads", "regard_set_num_threads")  # identify the library

    def get_num_threads(self) -> int:
        """Return the number of threads of the kernel."""
        return int(self.dynlib.regard_num_threads())

    def set_num_threads(self, num_threads: int) -> None:
        """Set the number of threads of the kernel."""
        self.dynlib.regard_set_num_threads(num_threads)

    def get_version(self) -> str:
        """Return the version of the package."""
        return __version__


def register() -> None:
    """Register the kernel, if this version of threadpoolctl supports it."""
    if hasattr(threadpoolctl, "register"):
        threadpoolctl.register(KernelController)
