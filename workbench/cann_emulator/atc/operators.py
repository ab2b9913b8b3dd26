"""Which ONNX operators ATC has a plugin for, by opset.

Plugins are registered as `domain::opset::Type` and looked up with the opset of the file (atc.md §8). ops-nn 8.5.0 and
its sister packages register opsets 8 to 18, many operators from 11 on only, a few up to 22. The list below is that of
the open packages by name of operator; which opsets each of the closed ones has is [inferred].
"""

from __future__ import annotations

from workbench.cann_emulator.atc.words import words

OLDEST, NEWEST = 8, 18
_ASCEND_NEWEST = 22

_FROM_8 = words("""
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization BitShift Cast Ceil Clip
    Compress Concat ConstantOfShape Conv ConvTranspose Cos Cosh CumSum DepthToSpace Det Div Dropout Einsum Elu
    Equal Erf Exp Expand EyeLike Flatten Floor GRU Gather GatherElements GatherND Gemm GlobalAveragePool
    GlobalLpPool GlobalMaxPool Greater GreaterOrEqual HardSigmoid HardSwish Hardmax Identity If InstanceNormalization
    IsInf IsNaN LRN LSTM LeakyRelu Less LessOrEqual Log LogSoftmax Loop LpNormalization LpPool MatMul Max MaxPool
    MaxRoiPool MaxUnpool Mean Min Mod Mul Multinomial Neg NonMaxSuppression NonZero Not OneHot Or PRelu Pad Pow
    RandomNormal RandomNormalLike RandomUniform RandomUniformLike Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum
    ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize
    ReverseSequence RoiAlign Round Scatter ScatterElements ScatterND Selu Shape Shrink Sigmoid Sign Sin Sinh Size Slice
    Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Tan Tanh ThresholdedRelu Tile TopK Transpose
    Unsqueeze Upsample Where Xor
    """)
_FROM_11 = words("""
    Bernoulli Celu ConcatFromSequence MeanVarianceNormalization SequenceAt SequenceConstruct SequenceEmpty
    SequenceErase SequenceInsert SequenceLength SplitToSequence Trilu Unique
    """)
_FROM_16 = frozenset({"GridSample"})
# deform_conv2d, bounding boxes and their like, which ModelZoo's exports put into the default domain
_OF_ASCEND_FROM_8 = words("""
    AdaptiveAvgPool2d AdaptiveMaxPool2d BatchNms BatchMultiClassNMS BoundingBoxDecode BoundingBoxEncode DeformableConv2D
    DeformableOffsets DetectionOutput GatherForRank1 MMCVModulatedDeformConv2d NPUIou NmsRotated NormalizeBatch
    PSROIPooling ROIAlign RoiExtractor RotatedBoxDecode TransformerDecode YoloBoxesEncode YoloPredetection
    """)
_QUANTIZED = frozenset({"AscendQuant", "AscendDequant", "AscendAntiQuant"})


def is_registered(domain: str, opset: int, op_type: str) -> bool:
    """Whether a plugin answers to `domain::opset::op_type`; '' is ai.onnx."""
    if domain not in ("", "ai.onnx"):
        return False
    if op_type in _QUANTIZED:
        return OLDEST <= opset <= _ASCEND_NEWEST  # amct.md §6.1
    if not OLDEST <= opset <= NEWEST:
        return False
    if op_type in _FROM_16:
        return opset >= 16
    if op_type in _FROM_11:
        return opset >= 11
    return op_type in _FROM_8 or op_type in _OF_ASCEND_FROM_8


def qualified(domain: str, opset: int, op_type: str) -> str:
    """The name a plugin is looked up by, such as `ai.onnx::11::Gelu`."""
    return f"{domain or 'ai.onnx'}::{opset}::{op_type}"
