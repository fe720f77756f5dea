"""Messages of a notebook get the responses of HTTP."""

import gc
import subprocess
import sys
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from explorations import explored, recorded, whole

import regard
from regard import RegardError
from regard.explorer.notebook_widget import make_widget, reply


def ask(exploration, method, **params):
    return reply(exploration, {"id": 7, "method": method, "params": params})


def test_an_answer_has_the_number_of_its_question(short):
    assert ask(short, "heads", run=0) == ({"id": 7, "result": short.heads(0)}, [])
    answer, (content,) = ask(short, "row", run=0, layer=1, head="mean", i=2, mode="raw")
    assert answer == {"id": 7, "type": "float32"}
    np.testing.assert_allclose(np.frombuffer(content, "<f4"), whole(short, 0, 1, "mean")[2], rtol=1e-6)
    edited = ask(short, "ablate", heads=[[0, 0]])[0]["result"]["run"]
    assert edited == 1
    assert ask(short, "movement", runs=[0, edited])[0]["result"] == short.movement([0, edited])


@pytest.mark.parametrize(("message", "says"), [
    ({"id": 1}, "there is no method 'None'"),
    ({"id": 1, "method": "heads", "params": [0]}, "params must be an object"),
    ("hello", "a message must be an object"),
])  # fmt: skip
def test_a_mistake_is_a_sentence(short, message, says):
    answer, buffers = reply(short, message)
    assert says in answer["error"]
    assert buffers == []


def test_a_fault_of_our_own_is_a_sentence_too(short, monkeypatch, caplog):
    monkeypatch.setattr(short, "cell", lambda **_: 1 / 0)
    (answer, buffers) = ask(short, "cell", run=0, layer=0, head=0, i=0, j=0)
    assert (answer["id"], buffers) == (7, [])
    assert "ZeroDivisionError" in answer["error"]
    assert "in reply" in caplog.text  # whoever mends it finds the traceback


def test_a_trace_is_explored_as_a_widget(bert):
    pytest.importorskip("anywidget")
    widget = recorded(bert, "the cat sat").explore(recorded(bert, "the cat on"), layer=1, head=2)
    assert "export default { render: $entry.render };" in widget._esm
    sent = []
    widget.send = lambda message, buffers=None: sent.append((message, buffers))
    widget._handle_custom_msg({"id": 3, "method": "manifest", "params": {}}, [])
    assert "import" not in widget._esm  # VS Code and others load it from a blob, beside which there is nothing
    assert "run this cell" in widget._repr_mimebundle_()[0]["text/plain"]
    ((answer, buffers),) = sent
    assert [run["initial"] for run in answer["result"]["runs"]] == [{"layer": 1, "head": 2}] * 2
    assert not buffers
    widget.close()


def test_a_page_is_told_when_the_kernel_cannot_answer(bert, monkeypatch):
    pytest.importorskip("anywidget")
    widget = recorded(bert, "the cat sat").explore()
    sent = []
    widget.send = lambda message, buffers=None: sent.append(message)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("regard.explorer.notebook_widget.dispatch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        widget._handle_custom_msg({"id": "a.3", "method": "heads", "params": {"run": 0}}, [])
    assert sent == [{"id": "a.3", "error": "the kernel did not respond: KeyboardInterrupt"}]
    widget.close()


def test_a_closed_widget_frees_what_it_showed(bert):
    pytest.importorskip("anywidget")
    exploration = explored(bert, "the cat sat")
    shown = weakref.ref(exploration)
    widget = make_widget(exploration)
    del exploration
    gc.collect()
    assert shown() is not None
    widget.close()
    del widget
    gc.collect()
    assert shown() is None


def test_without_anywidget_it_says_what_to_install(bert, monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(RegardError, match=r"pip install 'regard\[notebook\]'"):
        recorded(bert, "the cat").explore()


def test_in_a_notebook_the_page_is_a_widget(bert, monkeypatch):
    pytest.importorskip("anywidget")
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    widget = regard.explore("the cat sat", model=bert)
    assert "export default" in widget._esm
    widget.close()


def test_a_trace_knows_of_the_page_only_when_it_is_asked():
    code = "import sys, regard.trace; sys.exit(any(name.startswith('regard.explorer') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
