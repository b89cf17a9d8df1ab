"""Arrays on their way in and out, without a node."""
import numpy as np
import pytest

from millrace._base import arrays
from millrace._base.library import ffi, lib

torch = pytest.importorskip("torch")


def test_arrays_of_the_right_type_are_not_copied():
    keys, floats = np.arange(10, dtype=np.uint64), np.ones((3, 4), np.float32)
    assert arrays.keys(keys) is keys and arrays.floats(floats) is floats
    signed, weights = np.arange(-5, 5), torch.ones(6, requires_grad=True)
    assert np.shares_memory(arrays.keys(signed), signed)
    assert arrays.floats(weights).__array_interface__["data"][0] == weights.data_ptr()
    tensor = torch.arange(10)
    assert arrays.keys(tensor).__array_interface__["data"][0] == tensor.data_ptr()


def test_lists_of_keys_on_either_side_of_the_largest_int64():
    """Of which numpy makes floats."""
    assert arrays.keys([2**64 - 1, 2**53 + 1, 2**63]).tolist() == [2**64 - 1, 2**53 + 1, 2**63]
    assert arrays.keys([[2**63], [-1]]).tolist() == [[2**63], [2**64 - 1]]
    for wrong in ([2**63, 1.5], [2**63, 0.0], [1.0]):
        with pytest.raises(TypeError, match="whole numbers, not float64"):
            arrays.keys(wrong)


def test_what_has_gaps_is_copied():
    base = np.arange(20, dtype=np.uint64).reshape(4, 5)
    assert arrays.keys(base[:, ::2]).tolist() == [[0, 2, 4], [5, 7, 9], [10, 12, 14], [15, 17, 19]]
    assert arrays.keys(base.T).flags.c_contiguous and arrays.keys(base.T).shape == (5, 4)
    assert arrays.floats(torch.arange(6).reshape(2, 3).T).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert arrays.floats(torch.ones(3, dtype=torch.bfloat16)).dtype == np.float32
    assert arrays.keys(np.arange(4, dtype=">u8")).tolist() == [0, 1, 2, 3]


def test_offsets():
    assert arrays.offsets([0, 2, 5], 5, True).tolist() == [0, 2, 5]
    assert arrays.offsets(torch.tensor([0, 2]), 5, False).tolist() == [0, 2, 5]
    assert arrays.offsets([], 0, False).tolist() == [0]
    for given, includes_last in (
        ([0, 2], True),
        ([0, 2, -5], True),
        ([0, 2**33, 5], True),
        ([[0], [5]], True),
        ([], True),
    ):
        with pytest.raises(ValueError):
            arrays.offsets(given, 5, includes_last)
    for given in ([0.0, 5.0], ["0", "5"], [None, 5]):
        with pytest.raises(TypeError):
            arrays.offsets(given, 5, True)


def test_a_tensor_is_described_and_comes_back():
    for value in (
        np.arange(24, dtype=np.int16).astype(np.uint16).reshape(2, 3, 4),
        np.array(7.5),
        np.zeros((0, 3), np.float32),
        torch.arange(6, dtype=torch.int8).reshape(1, 1, 2, 3),
        torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        torch.ones(3, dtype=torch.float16),
    ):
        struct = ffi.new("struct mr_tensor *")
        array, dtype = arrays.typed(value)
        held = arrays.describe(struct, array, dtype)
        assert (struct.bytes, struct.rank) == (array.nbytes, array.ndim) and arrays.shape_of(struct) == tuple(
            value.shape
        )
        assert struct.bytes == array.size * lib.mr_dtype_bytes(dtype)
        back = arrays.untyped(arrays.view(struct, held), dtype, arrays.torch_of(value))
        assert type(back) is type(value) and back.dtype == value.dtype and (back == value).all()


def test_what_cannot_be_sent_is_refused():
    struct = ffi.new("struct mr_tensor *")
    with pytest.raises(ValueError, match="up to 4 dimensions"):
        arrays.describe(struct, np.zeros((1, 1, 1, 1, 1), np.float32), lib.MR_F32)
    for value in (
        np.array(["a"]),
        np.array([1 + 2j]),
        np.array([None]),
        torch.ones(2, dtype=torch.complex64),
    ):
        with pytest.raises(TypeError, match="cannot be sent"):
            arrays.typed(value)


def test_memory_lives_as_long_as_the_last_view():
    freed = []
    memory = ffi.new("float[]", [1, 2, 3, 4])
    array = arrays.over(memory, 16, (2, 2), np.float32, freed.append)
    view = torch.from_numpy(array)[1]
    del array
    assert not freed and view.tolist() == [3, 4]
    del view
    assert len(freed) == 1
