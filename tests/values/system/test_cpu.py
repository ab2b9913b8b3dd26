import subprocess
import sys

from workbench.values.system.cpu import cpu_of, this_cpu


def test_the_flags_tell_the_class() -> None:
    for flags, kind, saturates in (
        ("fpu avx2 avx512f avx512_vnni amx_int8", "AMX", False),
        ("fpu sse2 avx2 avx512f avx512_vnni", "AVX-512 VNNI", False),
        ("fpu sse2 avx2 avx_vnni", "AVX-VNNI", False),
        ("fpu sse2 avx2 avx512f", "AVX-512 without VNNI", True),
        ("fpu sse2 avx2", "AVX2 without VNNI", True),
        ("fp asimd asimddp sve i8mm", "Arm i8mm", False),
        ("fp asimd asimddp", "Arm dot product", False),
        ("fpu sse2", "of no known class", True),
        ("", "of no known class", True),
    ):
        cpu = cpu_of(flags.split(), "Some CPU @ 2 GHz")

        assert (cpu.name, cpu.kind, cpu.saturates) == ("Some CPU @ 2 GHz", kind, saturates)
        assert list(cpu.features) == sorted(set(flags.split()) - {"fpu", "sse2", "fp", "asimd"})


def test_asking_loads_no_library() -> None:
    """`serve` asks; what this processor really does is in `tests/quantization/test_exact_operands.py`."""
    code = "import sys; from workbench.values.system.cpu import this_cpu; this_cpu(); print('numpy' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
    assert this_cpu().name
