import pytest

from workbench.values.system.cpu import parse_cpu


@pytest.mark.parametrize(
    ("flags", "dot_product", "saturates"),
    [
        ("fpu sse2 avx2 avx512f avx512_vnni", True, False),
        ("fpu sse2 avx2 avx_vnni", True, False),
        ("fpu sse2 avx2", False, True),
        ("fp asimd asimddp", True, False),
    ],
    ids=["avx512_vnni", "avx_vnni", "avx2", "arm"],
)
def test_cpu_flags_tell_about_saturation(flags: str, dot_product: bool, saturates: bool) -> None:
    cpu = parse_cpu(f"processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: {flags}\n")

    assert cpu.name == "Some CPU @ 2 GHz"
    assert (cpu.dot_product, cpu.saturates) == (dot_product, saturates)


def test_a_system_without_cpuinfo_is_given_the_benefit_of_the_doubt() -> None:
    cpu = parse_cpu(None)

    assert (cpu.features, cpu.dot_product, cpu.saturates) == ((), True, False)
    assert cpu.name
