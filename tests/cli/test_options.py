"""A command is one module: its options as a frozen dataclass, its place in the help, and imports that wait for it."""

import argparse
import dataclasses
import importlib
import pkgutil
import re
import sys
import textwrap
import threading
from types import ModuleType

import pytest

from regard.cli import commands, main
from regard.cli.deferred import DeferredName, bind_imports, deferred_imports
from regard.cli.options import add_options, options, shared
from regard.cli.parser import parse
from regard.cli.shared_options import ModelChoice

COUNT = '''
"""``regard counted TEXT``: how many words a text has."""

from __future__ import annotations

from dataclasses import dataclass

from regard.cli.deferred import deferred_imports
from regard.cli.options import Command, flag, option, options
from regard.cli.shared_options import TextSource, text_source

with deferred_imports():
    import json as format

    from regard.cli.output import write
    from regard.cli.texts import read_text

COMMAND = Command(summary="count words", usage="TEXT [options]", examples='  regard counted "The cat sat"')


@options
class Options:
    """What is typed."""

    source: TextSource = text_source()
    longest: int | None = option("N", "leave out longer words", group="words", type=int)
    json: bool = flag("print JSON")


def run(options: Options) -> None:
    """Print how many words there are."""
    words = [word for word in read_text(options.source).split() if len(word) <= (options.longest or 99)]
    write(format.dumps(len(words)) if options.json else f"{len(words)} words")
'''


@pytest.fixture
def counted(monkeypatch, tmp_path):
    (tmp_path / "counted.py").write_text(textwrap.dedent(COUNT).lstrip())
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(tmp_path)])
    yield
    sys.modules.pop("regard.cli.commands.counted", None)
    vars(commands).pop("counted", None)


@pytest.mark.usefixtures("counted")
def test_a_command_is_one_file(capsys):
    assert main(["counted", "The cat sat", "--longest", "2"]) == 0
    assert capsys.readouterr().out == "0 words\n"
    assert main(["counted", "The cat sat", "--json"]) == 0
    assert capsys.readouterr().out == "3\n"
    assert main(["counted", "--longest", "two"]) == 2
    assert "argument --longest: invalid int value: 'two'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--help"])
    help = capsys.readouterr().out
    listed = re.findall(r"^    (\w+) ", help, re.MULTILINE)
    assert listed.index("counted") > listed.index("completion")  # without a place
    with pytest.raises(SystemExit):
        main(["counted", "--help"])
    assert "words:\n  --longest N" in capsys.readouterr().out
    assert main(["completion", "bash"]) == 0
    assert (
        "_shtab_regard_counted_option_strings=(-h --help --file --longest --json --verbose)" in capsys.readouterr().out
    )


def test_options_are_a_frozen_dataclass_without_defaults():
    call = parse(["a b", "--toy"])
    with pytest.raises(dataclasses.FrozenInstanceError):
        call.options.word = "b"
    with pytest.raises(TypeError, match="missing 17 required keyword-only arguments"):
        type(call.options)()
    assert dataclasses.replace(call.options, word="b") != call.options == dataclasses.replace(call.options)


def test_the_options_of_a_command_are_read():
    call = parse(["--toy", "--seed", "3", "--head", "L2H1", "-o", "a.png", "--", "a b"])
    assert call.module.__name__ == "regard.cli.commands.show"
    assert (call.options.source.text, call.options.source.literal) == (["a b"], True)
    assert (call.options.toy.enabled, call.options.toy.seed, call.options.toy.num_heads) == (True, 3, None)
    assert (call.options.map.layer, call.options.map.head) == (2, 1)
    assert call.options.files.paths == {"-o": ("a.png",), "--head-grid": (), "--movement": ()}


def executed(body, **names):
    """Return a module with a body."""
    module = ModuleType("deferring")
    vars(module).update(names, deferred_imports=deferred_imports)
    exec(body, vars(module))
    return module


DEFERRING = """
with deferred_imports():
    import colorsys as colors
    from wsgiref import validate
    from wsgiref.headers import Headers
"""


def test_imports_of_a_command_wait_until_it_runs(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] in ("colorsys", "wsgiref")]:
        monkeypatch.delitem(sys.modules, name)
    module = executed(DEFERRING)
    assert not {"colorsys", "wsgiref"} & set(sys.modules)
    with pytest.raises(AttributeError, match="colorsys is not imported before the command runs"):
        module.colors.rgb_to_hsv  # noqa: B018
    with pytest.raises(TypeError, match="not callable"):
        module.Headers()
    bind_imports(module)
    assert module.colors is sys.modules["colorsys"]
    assert module.validate is sys.modules["wsgiref.validate"]
    assert module.Headers is sys.modules["wsgiref.headers"].Headers


def test_other_threads_import_at_once():
    def elsewhere():
        names.update(vars(executed("import colorsys")))

    def wait():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    names = {}
    module = executed("with deferred_imports():\n    import wsgiref\n    wait()", wait=wait)
    assert isinstance(names["colorsys"], ModuleType)
    assert isinstance(module.wsgiref, DeferredName)
    assert __import__("colorsys") is names["colorsys"]


def test_a_misspelled_setting_and_a_default_that_declares_nothing_are_refused():
    with pytest.raises(TypeError, match="ModelChoice has no option modle"):
        shared(ModelChoice, modle={"default": "x"}).add("model", lambda _: argparse.ArgumentParser())
    with pytest.raises(TypeError, match="count is declared by option, flag, argument or shared, got 3"):
        options(type("Options", (), {"__annotations__": {"count": "int"}, "count": 3}))


@pytest.mark.parametrize("statement", ["import xml.etree", "import xml.etree as z", "from .x import y"])
def test_imports_that_would_bind_another_module_are_refused(statement):
    code = f"from regard.cli.deferred import deferred_imports\nwith deferred_imports():\n    {statement}"
    with pytest.raises(ImportError, match="has the form: from package"):
        exec(code, {"__name__": "regard.cli.commands.odd", "__package__": "regard.cli.commands"})


def test_an_option_takes_the_same_in_every_command():
    values = {}
    for command in pkgutil.iter_modules(commands.__path__):
        parser = argparse.ArgumentParser()
        add_options(parser, importlib.import_module(f"regard.cli.commands.{command.name}").Options)
        for action in parser._actions:
            for name in {*action.option_strings} - {"--head"}:  # a number, or L3H7 where the layer is needed
                values.setdefault(name, {})[command.name] = action.metavar
    assert {name: each for name, each in values.items() if len({*each.values()}) > 1} == {}
