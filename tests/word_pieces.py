"""A tokenizer of BERT's kind with a handful of words, for tests of everything that reads texts."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "pay", "##ment", "loan", "due", "张", "三", "[MASK]"]

PAD, UNK, CLS, SEP, PAY, MENT, LOAN, DUE, ZHANG, SAN, _ = range(len(VOCABULARY))


def write_tokenizer(path: Path, vocabulary: Sequence[str] = VOCABULARY, pad_to: int | None = None) -> Path:
    """A WordPiece tokenizer as BERT's, with a handful of words."""
    vocab = {token: index for index, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if "[CLS]" in vocab:
        special = [("[CLS]", vocab["[CLS]"]), ("[SEP]", vocab["[SEP]"])]
        tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
    if pad_to is not None:
        tokenizer.enable_padding(length=pad_to)
        tokenizer.enable_truncation(3)
    tokenizer.save(str(path))
    return path
