"""Messages between front end and worker."""

import socket

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from workbench.serve.wire import Reader, messages, pack

anything = arrays.arrays(
    st.sampled_from([np.int64, np.int32, np.float32, np.float16, np.bool_]), arrays.array_shapes(min_dims=0, min_side=0)
)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.dictionaries(st.text(max_size=5), anything, max_size=3), min_size=1, max_size=3), st.integers(1, 50))
def test_messages_arrive_whole_and_in_order_however_they_are_cut(
    messages: list[dict[str, np.ndarray]], piece: int
) -> None:
    stream = b"".join(pack({"batch": i}, message) for i, message in enumerate(messages))
    reader = Reader()

    got = [m for start in range(0, len(stream), piece) for m in reader.feed(stream[start : start + piece])]

    assert [m.head["batch"] for m in got] == list(range(len(messages)))
    for message, sent in zip(got, messages, strict=True):
        assert list(message.arrays) == list(sent)
        for name, array in sent.items():
            assert (message.arrays[name].dtype, message.arrays[name].shape) == (array.dtype, array.shape)
            np.testing.assert_array_equal(message.arrays[name], array)


def test_a_socket_gives_what_was_packed_and_then_the_end_of_the_other_side_wherever_it_comes() -> None:
    """Also transposed arrays, and outputs of strings, which runtimes give as objects."""
    arrays = {"x": np.arange(6).reshape(2, 3).T, "label": np.array([["approve", ""], ["拒绝", "b"]], dtype=object)}
    for rest in (b"", pack({"batch": 1})[:5], pack({"batch": 1})[:12]):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(pack({"batch": 7}, arrays) + rest)
            theirs.close()
            found = list(messages(ours))

        (message,) = found
        assert message.head["batch"] == 7
        assert {name: array.tolist() for name, array in message.arrays.items()} == {
            name: array.tolist() for name, array in arrays.items()
        }
