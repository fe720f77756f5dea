"""The pool of buffers for results."""

import gc
import os
import threading
import tracemalloc

import numpy as np
import pytest

from regard.functional import native

FLOAT32 = np.dtype(np.float32)
LARGE = (7, 100, 1000)
WITH_KERNEL = pytest.mark.skipif(native.kernel() is None, reason="the pool is part of the kernel")


@WITH_KERNEL
def test_a_freed_buffer_is_reused():
    first = native.empty(LARGE, FLOAT32)
    place = first.ctypes.data
    part = first[1:]  # keeps it
    del first
    other = native.empty(LARGE, FLOAT32)
    assert other.ctypes.data != place
    del part
    assert native.empty(LARGE, FLOAT32).ctypes.data == place


def resident():
    if not os.path.exists("/proc/self/statm"):  # noqa: PTH110
        pytest.skip("there is no /proc here to read it from")
    with open("/proc/self/statm", encoding="ascii") as stream:  # noqa: PTH123
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def filled(sizes):
    arrays = [native.empty((size,), FLOAT32) for size in sizes]
    for array in arrays:
        array[...] = 1
    return arrays


def test_the_pool_is_bounded():
    gc.collect()
    before = resident()
    arrays = filled([1 << 22] * 12)  # 16 MB each
    del arrays
    gc.collect()
    assert resident() - before < 100e6


@WITH_KERNEL
def test_repeated_work_gets_the_same_buffers():
    gc.collect()
    before = resident()
    with native.kept_buffers():
        filled([1 << 22] * 30)  # 480 MB
        again = [native.empty((1 << 22,), FLOAT32) for _ in range(30)]
        assert all((x[:: 1 << 10] == 1).all() for x in again)  # memory of the system would be 0
        del again
    gc.collect()
    assert resident() - before < 100e6


SMALL_BUFFERS = [1 << 18] * 300  # 1 MB each, side by side in chunks


@WITH_KERNEL
def test_memory_of_small_buffers_is_there_for_other_sizes():
    filled(SMALL_BUFFERS)
    gc.collect()
    before = resident()
    for size in (1 << 17, 3 << 16, 5 << 16):
        filled([size] * ((300 << 18) // size - 100))
    assert resident() - before < 50e6


@WITH_KERNEL
def test_one_small_buffer_does_not_hold_the_memory_of_others():
    gc.collect()
    before = resident()
    survivors = [filled(SMALL_BUFFERS)[number] for number in range(6)]
    assert resident() - before < 300e6 + 100e6  # of one round, not of six
    assert all((x == 1).all() for x in survivors)


@WITH_KERNEL
def test_a_buffer_of_the_pool_is_known_by_its_arrays():
    x = native.empty(LARGE, FLOAT32)
    places = {native.pool_buffer(view) for view in (x, x.view(np.int32), x.transpose(2, 0, 1), x.reshape(-1))}
    assert len(places) == 1
    assert None not in places
    for other in (x[1:], x[..., ::2], np.empty(LARGE, np.float32), np.zeros(3), 3.0):
        assert native.pool_buffer(other) is None


def test_kept_buffers_are_hardly_more_than_were_in_use_at_once():
    gc.collect()
    before = resident()
    with native.kept_buffers(), native.kept_buffers():
        for size in range(1 << 22, 5 << 22, 1 << 20):  # no two of a size
            filled([size, size])
        assert resident() - before < 2 * (5 << 24) + 100e6


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 5), (2, 3), LARGE, (5, 4, 3, 20000)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_shapes_and_dtypes_are_as_requested(shape, dtype):
    array = native.empty(shape, np.dtype(dtype))
    assert array.shape == shape
    assert array.dtype == dtype
    assert array.flags.c_contiguous
    assert array.flags.writeable


@pytest.mark.parametrize("view", [lambda x: x[None], lambda x: np.broadcast_to(x, (4, *x.shape))])
def test_an_axis_of_length_one_comes_first(rng, view):
    x = view(rng.standard_normal((40, 30, 20)))
    assert native.empty_like(x, x.shape, FLOAT32).flags.c_contiguous


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (2, 0, 1, 3)])
def test_axes_are_ordered_as_in_another_array(rng, order):
    back = np.argsort(order)
    x = rng.standard_normal((3, 40, 30, 20)).transpose(order)
    copy = native.pooled_copy(x)
    np.testing.assert_array_equal(copy, x)
    assert not np.shares_memory(copy, x)
    assert copy.transpose(back).flags.c_contiguous
    like = native.empty_like(x, (*x.shape[:-1], 7), FLOAT32)
    assert like.shape == (*x.shape[:-1], 7)
    assert like.transpose(back).flags.c_contiguous


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # it is meant
def test_a_forked_child_has_its_own_pool():
    array = native.empty(LARGE, FLOAT32)
    array[...] = 1
    child = os.fork()
    if child == 0:
        ok = (array == 1).all() and not native.empty(LARGE, FLOAT32).fill(2) and (array == 1).all()
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_tracemalloc_sees_the_memory():
    tracemalloc.start()
    try:
        array = native.empty((1 << 22,), FLOAT32)
        assert tracemalloc.get_traced_memory()[0] > array.nbytes
        del array
        assert tracemalloc.get_traced_memory()[0] < 1 << 22
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", [(1 << 50,), (1 << 40, 1 << 40), (1 << 62, 1 << 10)])
def test_out_of_memory_raises_as_numpy_does(shape):
    with pytest.raises((MemoryError, ValueError), match=r"Unable to allocate|array is too big|Maximum allowed"):
        native.empty(shape, FLOAT32)


def test_several_threads_acquire_and_release_at_once():
    wrong = []

    def work(number):
        for _ in range(200):
            array = native.empty(LARGE, FLOAT32)
            array[...] = number
            if (array != number).any():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
