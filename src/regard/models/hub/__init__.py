"""Where model files come from: the registry of named models, local folders, packages, downloads."""
