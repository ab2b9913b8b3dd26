"""Names of kernels through fusions, from ATC's JSON of an OM."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.targets.ascend.fused_names import kernels_of_json


def operator(name: str, kind: str, *nodes: str, key: str = "_datadump_original_op_names") -> dict[str, Any]:
    attributes = [{"key": key, "value": {"list": {"s": list(nodes)}}}] if nodes else []
    return {"name": name, "type": kind, "attr": attributes}


def test_a_kernel_is_mapped_to_all_nodes_that_were_fused_into_it() -> None:
    ops = [
        operator("x", "Data"),
        operator("w", "Const"),
        operator("mm_add_gelu", "MatMulV2", "mm", "add", "gelu"),
        operator("trans_Cast_1", "Cast"),
        operator("out", "NetOutput"),
    ]

    found = kernels_of_json({"graph": [{"op": ops}]})

    assert {name: (kernel.op_type, kernel.nodes) for name, kernel in found.items()} == {
        "mm_add_gelu": ("MatMulV2", ("mm", "add", "gelu")),
        "trans_Cast_1": ("Cast", ()),
    }


@pytest.mark.parametrize("data", [None, [], {}, {"graph": 3}, {"graph": [{"op": [3]}]}, {"graph": [{"op": [{}]}]}])
def test_another_form_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match=r"`graph`|no type"):
        kernels_of_json(data)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["key", "value", "list", "s", "attr"]), inner, max_size=3)
        ),
        max_leaves=12,
    )
)
def test_attributes_of_any_form_are_read_or_left(value: Any) -> None:
    op = {"name": "a", "type": "Add", "attr": value}

    found = kernels_of_json(json.loads(json.dumps({"graph": [{"op": [op]}]})))

    assert all(isinstance(node, str) for node in found["a"].nodes)
