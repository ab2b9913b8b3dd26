"""Messages between front end and worker."""

import socket

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from workbench.serve.wire import Reader, pack, receive

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


def test_a_transposed_array_arrives_as_it_looks() -> None:
    array = np.arange(6).reshape(2, 3).T

    [message] = Reader().feed(pack({}, {"x": array}))

    np.testing.assert_array_equal(message.arrays["x"], array)


@pytest.mark.parametrize(
    "sent", [b"", pack({"batch": 1})[:5], pack({"batch": 1})[:12]], ids=["none", "lengths", "head"]
)
def test_the_end_of_the_other_side_is_no_message(sent: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(sent)
        theirs.close()

        assert receive(ours) is None


def test_what_is_received_from_a_socket_is_what_was_packed() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(pack({"batch": 7}, {"x": np.ones((2, 2), np.float32)}))

        message = receive(ours)

    assert message is not None
    assert (message.head["batch"], message.arrays["x"].sum()) == (7, 4)


def test_texts_arrive_as_texts() -> None:
    """Runtimes give outputs of strings as objects."""
    array = np.array([["approve", ""], ["拒绝", "b"]], dtype=object)

    [message] = Reader().feed(pack({}, {"label": array, "score": np.ones(2)}))

    assert message.arrays["label"].tolist() == [["approve", ""], ["拒绝", "b"]]
