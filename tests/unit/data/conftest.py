"""Prepared once for all data tests: a folder of data sets, and a small real tokenizer."""

import json
from pathlib import Path

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|turn|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="session")
def bpe() -> str:
    """A byte-level BPE trained here, as the text of its tokenizer.json; BOS is put in front by its post-processor."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(text, special=True) for text in ("<s>", "</s>", "<pad>", "<|turn|>", "<|end|>")],
    )  # fmt: skip
    tokenizer.train_from_iterator(["What is 3 + 4? Reply with only the number."] * 20 + ["the sum of the"] * 9, trainer)
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    tokenizer.enable_truncation(5)  # what a published file may carry, and what must not cut a prompt
    tokenizer.enable_padding(length=64, pad_id=2, pad_token="<pad>")
    return tokenizer.to_str()


@pytest.fixture
def model_folder(tmp_path: Path, bpe: str) -> Path:
    """A folder as models are published, with a chat template that writes the BOS itself."""
    (tmp_path / "tokenizer.json").write_text(bpe, encoding="utf-8")
    settings = {
        "bos_token": {"content": "<s>", "lstrip": False}, "eos_token": "</s>", "pad_token": "<pad>",
        "chat_template": CHAT_TEMPLATE,
    }  # fmt: skip
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return tmp_path
