"""atc.md §1: forms, prefixes, abbreviations, repeats, and what goes to stderr."""

import pytest

from workbench.cann_emulator.atc.failure import AtcFailure
from workbench.cann_emulator.atc.flags import HelpAsked, Malformed, known_flags, parse

KNOWN = known_flags((8, 5, 0))


def options(*words: str) -> dict[str, str]:
    return parse(words, KNOWN)


def test_every_form_and_every_unambiguous_beginning_of_a_flag_means_the_same() -> None:
    for name in ("--soc_version", "-soc_version", "--soc-version", "-soc-version", "--soc", "--soc_v"):
        assert options(f"{name}=Ascend910B3") == options(name, "Ascend910B3") == {"soc_version": "Ascend910B3"}
    for short, full in (("out_node", "out_nodes"), ("op_precision", "op_precision_mode"), ("insert", "insert_op_conf")):
        assert options(f"--{short}=x") == {full: "x"}
    for name in ("o", "out", "dynamic", "precision", "enable", "op", "in", ""):
        with pytest.raises(Malformed) as caught:
            options(f"--{name}=1")
        assert caught.value.lines == (f"unknown command line flag '{name}'",)


def test_the_word_after_a_flag_is_its_value_whatever_it_is() -> None:
    assert options("--input_shape", "-1,128", "--model", "--log=info") == {
        "input_shape": "-1,128",
        "model": "--log=info",
    }


def test_stray_words_are_all_reported_and_only_after_the_flags() -> None:
    with pytest.raises(Malformed) as caught:
        options("one", "--framework=5", "two", "--", "--mode=9")

    assert caught.value.lines == tuple(f"Non-option parameter: {word}" for word in ("one", "two", "--mode=9"))
    with pytest.raises(AtcFailure):
        options("one", "--mode=9")


def test_an_unknown_flag_is_named_without_dashes_and_value() -> None:
    for word in ("-x", "-1", "--no_such_flag", "-nosuch=1", "---mode=0", "-hm"):
        with pytest.raises(Malformed) as caught:
            options(word)
        assert caught.value.lines == (f"unknown command line flag '{word.lstrip('-').partition('=')[0]}'",)


def test_help_is_asked_for() -> None:
    for word in ("--help", "--h", "-h", "-help", "--help=true", "--he", "--help=YES", "--help="):
        with pytest.raises(HelpAsked):
            options("--framework=5", word, "--no_such_flag")
