"""File formats: named arrays in files. Every header is treated as untrusted."""
