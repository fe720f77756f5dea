"""Model files by name: registry, search on this machine, verification, download."""
