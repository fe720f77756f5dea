"""File formats: bytes on disk to named arrays, and back. Every header is treated as hostile."""
