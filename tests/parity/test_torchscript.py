"""TorchScript in a block that uses regard: an error of one sentence, after which all is as before."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.nn import functional as F

from regard import RegardError
from regard.torch import use_regard

pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.*deprecated"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
ONE_SENTENCE = r"^TorchScript cannot compile or trace regard's attention: .* outside of use_regard\(\)$"


def make_function():
    """Return a function that nothing has compiled."""

    def attend(x: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, x, x, is_causal=True) * 2

    return attend


def make_module():
    """Return a module of a class that nothing has compiled."""

    class Attend(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.scaled_dot_product_attention(x, x, x, is_causal=True) * 2

    return Attend().eval()


class Inside(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.MultiheadAttention(4, 2, batch_first=True)
        self.inner = make_module()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.layer(x, x, x, need_weights=False)[0])


def make_layers():
    return Inside().train()  # in training PyTorch's layer calls the function


X = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
MAKE = {"function": make_function, "module": make_module, "layers": make_layers}
COMPILE = {"script": torch.jit.script, "trace": lambda f: torch.jit.trace(f, X)}


@pytest.mark.parametrize("compiler", COMPILE)
@pytest.mark.parametrize("name", MAKE)
def test_it_is_an_error_that_leaves_nothing_behind(name, compiler):
    made, compile_ = MAKE[name](), COMPILE[compiler]
    with use_regard():
        for _ in range(2):
            with pytest.raises(RegardError, match=ONE_SENTENCE) as caught:
                compile_(made)
            assert "\n" not in str(caught.value)
        ours = made(X)
    torch.testing.assert_close(made(X), ours)
    torch.testing.assert_close(compile_(made)(X), ours)


@pytest.mark.parametrize("compiler", COMPILE)
def test_what_was_compiled_before_runs_in_a_block_and_what_does_not_attend_is_compiled_there(compiler):
    made, layer = make_module(), torch.nn.Linear(4, 4).eval()
    before = COMPILE[compiler](made)
    with use_regard():
        torch.testing.assert_close(before(X), made(X))
        inside = COMPILE[compiler](layer)
    torch.testing.assert_close(inside(X), layer(X))


@pytest.mark.parametrize("compiler", COMPILE)
def test_a_thread_beside_a_block_compiles(compiler):
    made = make_module()
    with use_regard(), ThreadPoolExecutor(1) as pool:
        found = pool.submit(COMPILE[compiler], made).result()
    torch.testing.assert_close(found(X), made(X))
    assert "scaled_dot_product_attention" in str(found.inlined_graph)
