"""ONNX operator → Ascend operator, and what executes it.

Names are those of the operator library as the plugins of ops-nn and its sisters give them; where several kernels may
answer, the one for static shapes is named ([inferred] for those of the closed packages).
"""

from __future__ import annotations

from collections.abc import Mapping

from workbench.cann_emulator.om import Core


def words(text: str) -> frozenset[str]:
    """The words of a text: a long list of names."""
    return frozenset(text.split())


VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout"})
"""Of no cost: their result is the same memory under another shape."""

_RENAMED: Mapping[str, str] = {
    "And": "LogicalAnd",
    "ArgMax": "ArgMaxV2",
    "AveragePool": "AvgPoolV2",
    "BatchNormalization": "BNInference",
    "Clip": "ClipByValueV2",
    "Concat": "ConcatD",
    "ConstantOfShape": "Fill",
    "Conv": "Conv2D",
    "ConvTranspose": "Conv2DTranspose",
    "CumSum": "CumsumD",
    "Div": "RealDiv",
    "Expand": "BroadcastToD",
    "Flatten": "FlattenV2",
    "GRU": "DynamicGRUV2",
    "Gather": "GatherV2",
    "GatherND": "GatherNd",
    "Gemm": "GEMM",
    "GlobalAveragePool": "ReduceMeanD",
    "GlobalMaxPool": "ReduceMaxD",
    "GreaterOrEqual": "GreaterEqual",
    "InstanceNormalization": "InstanceNorm",
    "LSTM": "DynamicRNN",
    "LessOrEqual": "LessEqual",
    "LogSoftmax": "LogSoftmaxV2",
    "Max": "Maximum",
    "MaxPool": "MaxPoolV3",
    "Min": "Minimum",
    "Not": "LogicalNot",
    "OneHot": "OneHotD",
    "Or": "LogicalOr",
    "PRelu": "PRelu",
    "Pad": "PadV3D",
    "ReduceMax": "ReduceMaxD",
    "ReduceMean": "ReduceMeanD",
    "ReduceMin": "ReduceMinD",
    "ReduceProd": "ReduceProdD",
    "ReduceSum": "ReduceSumD",
    "Resize": "ResizeBilinearV2",
    "RoiAlign": "ROIAlign",
    "ScatterElements": "ScatterElements",
    "ScatterND": "ScatterNdUpdate",
    "Slice": "StridedSliceD",
    "Softmax": "SoftmaxV2",
    "Split": "SplitVD",
    "Sum": "AddN",
    "Tile": "TileD",
    "TopK": "TopKV2",
    "Transpose": "TransposeD",
    "Where": "SelectV2",
    "Xor": "LogicalXor",
}
_CUBE = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "LSTM", "GRU"})
_AICPU = words("""
    Compress Det EyeLike If Loop Scan Multinomial NonMaxSuppression NonZero RandomNormal RandomNormalLike RandomUniform
    RandomUniformLike Bernoulli ReverseSequence SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert
    SequenceLength SplitToSequence ConcatFromSequence Unique
    """)

ELEMENTWISE = words("""
    Abs Add AddN ClipByValueV2 Elu Erf Exp Floor Ceil Gelu HardSigmoid HardSwish LeakyRelu Log LogicalAnd LogicalNot
    LogicalOr Maximum Minimum Mul Neg Pow PRelu RealDiv Reciprocal Relu Round SelectV2 Selu Sigmoid Sign Softplus
    Sqrt Sub Tanh Equal Greater GreaterEqual Less LessEqual Celu Sin Cos Softsign
    """)
"""Types that the on-chip buffer passes call element-wise; Cast is a case of its own."""


def ascend_type(onnx_type: str) -> str:
    """The Ascend type of an ONNX operator, MatMul by rank aside."""
    return _RENAMED.get(onnx_type, onnx_type)


def core_of(onnx_type: str) -> Core:
    if onnx_type in VIEWS:
        return "none"
    if onnx_type in _CUBE:
        return "cube"
    return "aicpu" if onnx_type in _AICPU else "vector"
