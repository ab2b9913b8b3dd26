"""What the tests of AMCT's files share: layers by hand."""

from dataclasses import replace

from workbench.graph.layers import Layer


def conv(name: str, shape: tuple[int, ...] = (4, 3, 3, 3), groups: int = 1) -> Layer:
    return Layer(
        name=name,
        op_type="Conv",
        activation=f"{name}.in",
        output=f"{name}.out",
        weight=f"{name}.weight",
        weight_shape=shape,
        output_axis=0,
        groups=groups,
    )


def conv_transpose(name: str, shape: tuple[int, ...] = (4, 2, 3, 3), groups: int = 1) -> Layer:
    return replace(conv(name, shape, groups), op_type="ConvTranspose", output_axis=1)


def matmul(
    name: str, shape: tuple[int, ...] = (8, 6), *, op_type: str = "MatMul", weight: str = "", transposed: bool = False
) -> Layer:
    return Layer(
        name=name,
        op_type=op_type,
        activation=f"{name}.in",
        output=f"{name}.out",
        weight=weight or f"{name}.weight",
        weight_shape=shape,
        output_axis=0 if transposed else 1,
        transposed=transposed,
    )


def product(name: str) -> Layer:
    return Layer(name=name, op_type="MatMul", activation=f"{name}.a", output=f"{name}.out", second=f"{name}.b")


def pool(name: str) -> Layer:
    return Layer(name=name, op_type="AveragePool", activation=f"{name}.in", output=f"{name}.out")
