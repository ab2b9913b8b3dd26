"""What metrics, criteria, settings and candidates are called in each language."""

from __future__ import annotations

from workbench.load.result import LoadResult
from workbench.report.written.document import Language
from workbench.report.written.texts import Text
from workbench.values.candidate import Candidate, Quantization
from workbench.values.candidate_words import describe
from workbench.values.documents.canonical import encode
from workbench.values.fidelity import FidelityPath
from workbench.values.installed_targets import installed_target
from workbench.values.measurement import Split
from workbench.values.service import ServiceLoad, ServiceSettings
from workbench.values.setting_groups import Group

METRIC: dict[str, Text] = {
    "accuracy": Text(zh="精度（主指标）", en="accuracy (primary metric)"),
    "accuracy_drop_pp": Text(zh="精度损失", en="accuracy drop"),
    "accuracy_drop": Text(zh="精度损失（指标自身单位）", en="accuracy drop (the metric's own unit)"),
    "latency_p50_ms": Text(zh="单次推理 P50 时延", en="P50 of one call"),
    "latency_p95_ms": Text(zh="单次推理 P95 时延", en="P95 of one call"),
    "latency_p99_ms": Text(zh="单次推理 P99 时延", en="P99 of one call"),
    "throughput_per_s": Text(zh="单会话吞吐", en="throughput of one session"),
    "speedup": Text(zh="相对浮点基线的加速比", en="speed-up over the float baseline"),
    "size_mb": Text(zh="编译产物大小", en="compiled files"),
    "peak_memory_mb": Text(zh="峰值内存", en="peak memory"),
    "perplexity": Text(zh="困惑度", en="perplexity"),
    "kl": Text(zh="KL 散度", en="KL divergence"),
    "prefill_ms": Text(zh="预填充时间（推算）", en="prefill time (modelled)"),
    "decode_ms": Text(zh="解码一步的时间（推算）", en="time of a decoding step (modelled)"),
    "kv_kb_per_token": Text(zh="每 token 的 KV 缓存", en="KV cache of a token"),
    "startup_s": Text(zh="启动时间", en="start-up"),
    "service_throughput_per_s": Text(zh="服务吞吐", en="throughput of the service"),
    "service_p50_ms": Text(zh="服务 P50 时延", en="P50 of the service"),
    "service_p99_ms": Text(zh="服务 P99 时延", en="P99 of the service"),
    "cosine": Text(zh="与 float32 的余弦相似度（平均）", en="mean cosine with float32"),
    "worst_cosine": Text(zh="与 float32 的余弦相似度（最差）", en="worst cosine with float32"),
    "max_abs": Text(zh="与 float32 的最大绝对误差", en="max abs error against float32"),
    "mae": Text(zh="与 float32 的平均绝对误差（MAE）", en="MAE against float32"),
    "top1_agreement": Text(zh="与 float32 的 top-1 一致率", en="top-1 agreement with float32"),
    "int8_ops": Text(zh="INT8 算子数", en="operators in INT8"),
    "float_matmuls_left": Text(zh="保留浮点的矩阵乘/卷积算子数", en="matrix products left in float"),
}
"""Of the metrics that an experiment may name; another one goes by its own name."""
SPLIT: dict[Split, Text] = {
    "calibration": Text(zh="校准集", en="calibration"),
    "validation": Text(zh="验证集", en="validation"),
    "holdout": Text(zh="留出集", en="held-out"),
}
PATH: dict[FidelityPath, Text] = {
    "pytorch": Text(zh="PyTorch", en="PyTorch"),
    "float32": Text(zh="ONNX Runtime float32", en="ONNX Runtime float32"),
    "float32 compiled": Text(zh="目标平台 float32", en="target, float32"),
    "float16 compiled": Text(zh="目标平台 FP16（现行）", en="target, FP16 as today"),
    "served": Text(zh="交付产物", en="what ships"),
    "old platform": Text(zh="原平台", en="old platform"),
}
GROUP: dict[Group, Text] = {
    "engine": Text(zh="推理引擎", en="engine"),
    "lengths": Text(zh="序列分桶", en="length bins"),
    "precision": Text(zh="精度", en="precision"),
    "graph": Text(zh="图优化与融合", en="graph settings"),
    "threads": Text(zh="线程数", en="threads"),
    "batch": Text(zh="batch", en="batch"),
}
_IN_FLOAT = {
    "layer": Text(zh="{n} 个敏感层保留浮点", en="{n} sensitive layers in float"),
    "group": Text(zh="{n} 组敏感层保留浮点", en="{n} sensitive groups in float"),
}


def metric_name(metric: str, language: Language) -> str:
    known = METRIC.get(metric)
    return metric if known is None else known(language)


def candidate_name(candidate: Candidate, language: Language) -> str:
    """One phrase: 'INT8 静态量化（ifmr，对称，注意力矩阵乘一并量化），分桶 32/80/128/256'."""
    if language == "en":
        return describe(candidate)
    title = installed_target(candidate.target)
    words = [title.title] if title.named else []
    if numbers := candidate.compile.numbers(candidate):  # a language model's recipe, in the vendor's words
        return "，".join([*words, numbers, *candidate.compile.words(candidate)])
    words.append(_numbers(candidate.precision.mode, candidate.quantization))
    if bins := candidate.sequence_bins:
        words.append(bins_name(bins, language))
    usual = encode(type(candidate.compile)().shown())
    own = {
        name: value
        for name, value in candidate.parameters().items()
        if name.startswith("compile.")
        and name != "compile.sequence_bins"
        and value not in ("", usual.get(name.removeprefix("compile.")))
    }
    return "，".join([*words, *(f"{name.removeprefix('compile.')}={value}" for name, value in own.items())])


def _numbers(mode: str, q: Quantization) -> str:
    if q.scheme == "none":
        return f"{mode}（不量化）"
    scheme = {"dynamic": "动态", "static": "静态", "cfg": "按配置文件"}[q.scheme]
    facts = [] if q.operators == "all" else [{"matmul": "仅矩阵乘", "conv": "仅卷积"}[q.operators]]
    if q.calibrator is not None:
        facts.append(f"标定器 {q.calibrator}")
    if q.algorithm is not None:
        facts.append(q.algorithm if q.percentile is None else f"{q.algorithm} {q.percentile:g}")
    if q.activation_symmetric is not None:
        facts.append("激活对称" if q.activation_symmetric else "激活非对称")
    if q.weight_granularity is not None:
        facts.append("权重逐通道" if q.weight_granularity == "channel" else "权重逐张量")
    if q.weight_algorithm not in (None, "minmax"):
        facts.append(f"权重 {q.weight_algorithm}")
    if q.attention_matmul:
        facts.append("注意力矩阵乘一并量化")
    if q.balance is not None:
        facts.append(f"均衡 {q.balance}")
    if q.bias_correction:
        facts.append("偏置校正")
    if q.keep_float:
        by = "" if q.sensitivity == "sqnr" else f"（按 {q.sensitivity} 排序）"
        facts.append(_IN_FLOAT[q.keep_float_unit or "layer"]("zh", n=q.keep_float) + by)
    return f"INT8 {scheme}量化" + (f"（{'，'.join(facts)}）" if facts else "")


def bins_name(bins: tuple[int, ...], language: Language) -> str:
    joined = "/".join(map(str, bins))
    if language == "en":
        return f"bins {joined}" if len(bins) > 1 else f"length {joined}"
    return f"分桶 {joined}" if len(bins) > 1 else f"定长 {joined}"


def settings_name(settings: ServiceSettings, language: Language) -> str:
    """'最大 batch 16，等待 10 ms，2 个工作进程，分桶 32/64'."""
    if language == "en":
        return str(settings)
    words = (
        f"最大 batch {settings.max_batch_size}，等待 {settings.batch_timeout_ms:g} ms，{settings.workers} 个工作进程"
    )
    return f"{words}，{bins_name(settings.sequence_bins, language)}" if settings.sequence_bins else words


def load_name(load: ServiceLoad, language: Language) -> str:
    if language == "en":
        return str(load)
    if load.arrivals == "closed":
        return f"闭环，并发 {load.concurrency}"
    if load.arrivals == "poisson":
        return f"开环，泊松到达 {load.rate_per_s:g} 请求/s"
    return f"回放 {len(load.trace_s)} 个请求的到达时间"


def loaded_name(one: LoadResult, language: Language) -> str:
    """The load with what each request was: 'closed loop' alone compares nothing."""
    words = [load_name(one.load, language)]
    if one.length is not None:
        words.append(f"长度 {one.length}" if language == "zh" else f"length {one.length}")
    if one.batch > 1:
        words.append(f"batch {one.batch}")
    return ("，" if language == "zh" else ", ").join(words)
