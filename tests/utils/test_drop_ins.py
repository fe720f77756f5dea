"""Errors of functions that stand in for a framework's."""

import pickle
import traceback

import pytest

from regard import RegardError
from regard._utils.drop_ins import raises
from regard._utils.errors import JaxError, TorchError


@pytest.mark.parametrize(("kind", "own"), [(TorchError, RuntimeError), (JaxError, ValueError)])
def test_the_error_of_a_drop_in_is_of_both_kinds_and_tells_all(kind, own):
    def compute():
        error = RegardError("a shape does not fit")
        error.add_note("more")
        raise error from KeyError("cause")

    with pytest.raises(own, match=r"^a shape does not fit") as caught:
        raises(kind)(compute)()
    assert isinstance(caught.value, RegardError)
    assert caught.value.__notes__ == ["more"]
    assert isinstance(caught.value.__cause__, KeyError)
    assert traceback.extract_tb(caught.tb)[-1].name == "compute"
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(copy) is kind
    assert copy.args == caught.value.args


def test_other_errors_pass():
    with pytest.raises(KeyError):
        raises(TorchError)({}.__getitem__)("missing")
    assert not issubclass(RegardError, RuntimeError | ValueError)
