"""ONNX operator → Ascend operator, what executes it, and for which opsets ATC has a plugin.

Names are those of the operator library as the plugins of ops-nn and its sisters give them; where several kernels may
answer, the one for static shapes is named ([inferred] for those of the closed packages).

Plugins are registered as `domain::opset::Type` and looked up with the opset of the file (atc.md §8). ops-nn 8.5.0 and
its sister packages register opsets 8 to 18, many operators from 11 on only, a few up to 22. The list below is that of
the open packages by name of operator; which opsets each of the closed ones has is [inferred].
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


# --- plugins by opset ---

OLDEST, NEWEST = 8, 18
_ASCEND_NEWEST = 22

_FROM_8 = words("""
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization BitShift Cast Ceil Clip
    Compress Concat Constant ConstantOfShape Conv ConvTranspose Cos Cosh CumSum DepthToSpace Det Div Dropout Einsum Elu
    Equal Erf Exp Expand EyeLike Flatten Floor GRU Gather GatherElements GatherND Gemm GlobalAveragePool
    GlobalLpPool GlobalMaxPool Greater GreaterOrEqual HardSigmoid HardSwish Hardmax Identity If InstanceNormalization
    IsInf IsNaN LRN LSTM LeakyRelu Less LessOrEqual Log LogSoftmax LpNormalization LpPool MatMul Max MaxPool
    MaxRoiPool MaxUnpool Mean Min Mod Mul Multinomial Neg NonMaxSuppression NonZero Not OneHot Or PRelu Pad Pow
    RandomNormal RandomNormalLike RandomUniform RandomUniformLike Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum
    ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize
    ReverseSequence RoiAlign Round Scatter ScatterElements ScatterND Selu Shape Shrink Sigmoid Sign Sin Sinh Size Slice
    Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Tan Tanh TfIdfVectorizer ThresholdedRelu Tile
    TopK Transpose Unsqueeze Upsample Where Xor
    """)
_FROM: Mapping[int, frozenset[str]] = {
    11: words("""
        Celu ConcatFromSequence MeanVarianceNormalization SequenceAt SequenceConstruct SequenceEmpty SequenceErase
        SequenceInsert SequenceLength SplitToSequence Unique
        """),
    12: frozenset({"SoftmaxCrossEntropyLoss"}),
    13: frozenset({"Triu"}),
    14: frozenset({"Trilu"}),
    15: frozenset({"Bernoulli", "CastLike"}),
    16: frozenset({"GridSample", "GridSampleV2"}),
    18: words("BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Col2Im"),
}
"""First opset of what came later. Loop and Scan are in no package and no manual: the parser knows the subgraphs of If
alone (ge v8.5.0 parser/parser/onnx/subgraph_adapter)."""
_AT_11_TOO = frozenset({"GridSample", "GridSampleV2"})
"""Exports of opset 11 that write these, as MMCV's do."""
# deformable convolution, bounding boxes and their like, which ModelZoo's exports put into the default domain
_OF_ASCEND_FROM_8 = words("""
    AdaptiveAvgPool2d AdaptiveMaxPool2d Addcmul AffineGrid BatchMatMul BatchMultiClassNMS BatchNms BoundingBoxDecode
    BoundingBoxEncode Corr DeformableConv2D DeformableOffsets DetectionOutput DynSeqOuter EmbeddingBag GatherForRank1
    Int8Transpose LSTMP MovingSumWithSigmoid NormalizeBatch NPUIou NmsRotated PSROIPooling ROIAlign ResizeBicubic
    ResizeBilinear RoiAlignRotated RoiAlignRotatedV2 RoiExtractor RotatedBoxDecode SwinAttentionFFN SwinAttentionScore
    SwinTransformerLnQKV TransformerDecode YoloBoxesEncode YoloPreDetection YoloPredetection
    """)
_OF_TORCH_FROM_11 = words("""
    MultiHeadAttention NPUAnchorResponseFlags NPUBatchNms NPUBoundingBoxDecode NPUBoundingBoxEncode NPUCiou NPUDiou
    NPUDropoutWithAddSoftmax NPUDtypeCast NPUFlashAttention NPUFormatCast NPUFusedAttentionScore NPUGiou
    NPUGridAssignPositive NPUGroupNormSilu NPUGru NPUIncreFlashAttention NPUIndexing NPUMoeComputeExpertTokens
    NPUMoeFinalizeRouting NPUMoeGatingTopKSoftmax NPUMoeInitRouting NPUMultiHeadAttention NPUNmsV4 NPUNmsWithMask
    NPUOneHot NPUPsRoiPooling NPURmsNorm NPURotatedIou NPURotatedOverlaps NPURotaryMul NPUScaledMaskedSoftmax
    NPUSignBitsPack NPUSlice NPUYoloBoxesEncode
    """)
"""What torch_npu exports: in the default domain, and as `npu::1::Type`."""
_QUANTIZED = words("AscendQuant AscendDequant AscendAntiQuant AscendRequant AscendRequantS16 AscendDequantS16")


def is_registered(domain: str, opset: int, op_type: str) -> bool:
    """Whether a plugin answers to `domain::opset::op_type`; '' is ai.onnx."""
    if domain == "npu":
        return opset == 1 and op_type.startswith("NPU") and op_type in _OF_TORCH_FROM_11
    if domain not in ("", "ai.onnx"):
        return False
    if op_type in _QUANTIZED:
        return OLDEST <= opset <= _ASCEND_NEWEST  # amct.md §6.1
    if not OLDEST <= opset <= NEWEST:
        return False
    if op_type in _FROM_8 or op_type in _OF_ASCEND_FROM_8 or (op_type in _AT_11_TOO and opset == 11):
        return True
    if op_type in _OF_TORCH_FROM_11:
        return opset >= 11
    return any(first <= opset and op_type in types for first, types in _FROM.items())


def qualified(domain: str, opset: int, op_type: str) -> str:
    """The name a plugin is looked up by, such as `ai.onnx::11::Gelu`."""
    return f"{domain or 'ai.onnx'}::{opset}::{op_type}"
