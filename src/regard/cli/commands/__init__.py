"""The commands of ``regard``: a module of this package is the command of its name.

Each module has `Options`, a frozen dataclass of what is typed; `COMMAND`, its place in the help; and `run`, which takes
the options. Nothing lists the modules. Imports that only `run` needs stand in `deferred_imports`.
"""
