"""Train the language model and write everything in this example that is made by a program.

    python examples/text_generation/train.py

It writes, below the folder it lies in (or below `--output`):

    models/text_generation/1/checkpoint/    tokenizer, weights and settings, as Hugging Face saves them
    tests/reference.json, reference.npz     what Hugging Face's own code makes of them, for the tests

The text is what every Python installation carries: the docstrings of its standard library, the help topics
of `pydoc`, the licence and the Zen of Python. A fiftieth of the documents is held out and used once, at the
end, to say how good the network is. All randomness is seeded and the training runs on one thread, so that two
runs on one machine with the same Python write the same files.
"""

from __future__ import annotations

import argparse
import ast
import codecs
import contextlib
import io
import json
import random
import re
import shutil
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

SEED = 7
PYTHON = (3, 11)  # whose library the committed network has read; another one works and gives another network
HELD_OUT_SHARE = 0.02
END = "<|endoftext|>"
VOCABULARY = 2048
CONTEXT = 256
WIDTH = 160
LAYERS = 4
HEADS = 4
STEPS = 3600
BATCH_SIZE = 4
LEARNING_RATE = 2e-3
REQUIRED_LOSS = 4.0  # nats per token; a network that guesses worse is not written

# Folders whose texts are no documentation, or old copies of what stands elsewhere.
LEFT_OUT = {"site-packages", "test", "tests", "idle_test", "idlelib", "lib2to3", "turtledemo", "ensurepip"}

PROMPTS = ["How can you be", "Return a list of", "Errors should never pass silently.", "def "]
TRICKY = [
    "",
    " ",
    "  two   blanks \t tab\n\n\nlines \n",
    "It's 12 o'clock, we'll see; they'd've 'SHOUTED' isn't",
    "naïve café, Ω≈ç√ 中文字符 한국어 עברית 🙂👩‍👩‍👧",
    "x²+½y ٣ Ⅷ ok\u00a0no-break\u2003em\u3000wide\x85next\x1cunit",
    "e\u0301 \u200b zero width \ufeff bom \x00 nul \x7f",
    f"{END} is plain text",
    "snake_case __init__ 3.14e-10 <tag attr='v'> C:\\path\r\nend",
]


def main() -> None:
    """Train, measure, and write the files only if the network is good enough."""
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description="Train the language model and write the example's files.")
    parser.add_argument("--output", type=Path, default=here, help="folder to write to (default: this one)")
    output: Path = parser.parse_args().output
    if sys.version_info[:2] != PYTHON:
        print(f"This Python is not {PYTHON[0]}.{PYTHON[1]}: expect another network than the committed one.")

    held_out, documents = split(sorted(set(map(unwrapped, library_documents()))))
    tokenizer = train_tokenizer(documents)
    learned, unseen = token_stream(tokenizer, documents), token_stream(tokenizer, held_out)
    print(f"{len(documents)} documents, {len(learned)} tokens; held out {len(held_out)}, {len(unseen)}")
    network = train(learned)
    checkpoint = output / "models/text_generation/1/checkpoint"
    loss = measure(network.half().float(), unseen)  # as the rounded weights will be served
    print(f"loss on held-out documents: {loss:.3f} nats per token, perplexity {np.exp(loss):.1f}")
    if loss > REQUIRED_LOSS:
        raise SystemExit(f"nothing written: the loss is above the required {REQUIRED_LOSS}")
    save(network, tokenizer, checkpoint)
    write_reference(checkpoint, output / "tests")


def library_documents() -> Iterator[str]:
    """Yield the texts that came with this Python; some more than once."""
    library = Path(sysconfig.get_paths()["stdlib"])
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for path in library.rglob("*.py"):
        if not LEFT_OUT.isdisjoint(path.relative_to(library).parts):
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, documented) and (text := ast.get_docstring(node)):
                yield text.strip()
    for text in topics.values():
        yield text.strip()
    yield licence()
    with contextlib.redirect_stdout(io.StringIO()):
        import this  # prints what it holds
    yield codecs.decode(this.s, "rot13")


def unwrapped(text: str) -> str:
    """Join the lines of each paragraph, so that a word looks the same wherever a line ended before it."""
    return re.sub(r"(?<=\S)\n(?=[^\W\d_]|[\"'`(])", " ", text)


def licence() -> str:
    """Return the licence of this Python, as `license()` shows it."""
    library = Path(sysconfig.get_paths()["stdlib"])
    return (library / "LICENSE.txt").read_text().strip()


def split(documents: list[str]) -> tuple[list[str], list[str]]:
    """Shuffle `documents` and return those to hold out and those to learn from."""
    random.Random(SEED).shuffle(documents)
    count = round(len(documents) * HELD_OUT_SHARE)
    return documents[:count], documents[count:]


def train_tokenizer(documents: list[str]) -> Tokenizer:
    """Return a byte-level byte-pair tokenizer as GPT-2 has one, fitted to `documents`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer


def token_stream(tokenizer: Tokenizer, documents: list[str]) -> torch.Tensor:
    """Return the tokens of all `documents`, one after the other, each closed by the end token."""
    end = tokenizer.token_to_id(END)
    encoded = tokenizer.encode_batch_fast(documents)
    return torch.tensor([token for document in encoded for token in [*document.ids, end]])


def blocks(stream: torch.Tensor, first: int = 0) -> torch.Tensor:
    """Cut `stream` from token `first` on into rows of one context each; what is left over is dropped."""
    count = (len(stream) - first) // CONTEXT
    return stream[first : first + count * CONTEXT].view(count, CONTEXT)


def train(stream: torch.Tensor) -> GPT2LMHeadModel:
    """Fit a small GPT-2 to `stream` and return it."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    network = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=CONTEXT,
            n_embd=WIDTH,
            n_layer=LAYERS,
            n_head=HEADS,
            # An epoch is a sixth of the training: too little is seen twice to need dropout.
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    matrices = [weight for weight in network.parameters() if weight.dim() > 1]
    vectors = [weight for weight in network.parameters() if weight.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=LEARNING_RATE,
        betas=(0.9, 0.99),
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, total_steps=STEPS, pct_start=0.05, cycle_momentum=False
    )
    network.train()
    begin = time.monotonic()
    for step, batch in zip(range(STEPS), batches(stream), strict=False):
        optimizer.zero_grad()
        loss = network(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 200 == 199:
            print(f"step {step + 1}, {time.monotonic() - begin:.0f} s: loss {loss.item():.3f}", flush=True)
    return network.eval()


def batches(stream: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield batches for ever; every epoch cuts the stream at other places and mixes the pieces."""
    while True:
        rows = blocks(stream, int(torch.randint(CONTEXT, ())))
        order = torch.randperm(len(rows))
        for chosen in order.split(BATCH_SIZE):
            if len(chosen) == BATCH_SIZE:
                yield rows[chosen]


@torch.no_grad()
def measure(network: GPT2LMHeadModel, stream: torch.Tensor) -> float:
    """Return the mean loss per token on `stream`."""
    losses = [network(input_ids=rows, labels=rows).loss.item() for rows in blocks(stream).split(BATCH_SIZE)]
    return float(np.mean(losses))


def save(network: GPT2LMHeadModel, tokenizer: Tokenizer, folder: Path) -> None:
    """Write what `from_pretrained` reads, weights in half precision, and the licence of the texts."""
    shutil.rmtree(folder, ignore_errors=True)
    network.generation_config.update(
        do_sample=True, temperature=0.6, top_k=40, max_new_tokens=40, eos_token_id=0, pad_token_id=0
    )
    network.half().save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=END, eos_token=END, model_max_length=CONTEXT
    ).save_pretrained(folder)
    (folder / "LICENSE").write_text(licence() + "\n")
    (folder / "model.safetensors").chmod(0o644)  # it was written for its owner only


@torch.no_grad()
def write_reference(checkpoint: Path, folder: Path) -> None:
    """Record what Hugging Face's own code makes of the saved files: tokens, logits and greedy text."""
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    tokenizer.encode_special_tokens = True  # the end token in a text is text
    network = GPT2LMHeadModel.from_pretrained(checkpoint, dtype=torch.float32)
    continued = {}
    for prompt in PROMPTS:
        tokens = torch.tensor([tokenizer.encode(prompt).ids])
        answer = network.generate(tokens, do_sample=False, max_new_tokens=24, min_new_tokens=24)
        continued[prompt] = answer[0, tokens.shape[1] :].tolist()
    reference = {"encoded": {text: tokenizer.encode(text).ids for text in TRICKY}, "greedy": continued}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "reference.json").write_text(json.dumps(reference, indent=1) + "\n")
    tokens = torch.tensor(tokenizer.encode(" ".join(PROMPTS)).ids)
    logits = network(input_ids=tokens[np.newaxis]).logits[0, -8:]  # the last 8 positions
    np.savez_compressed(folder / "reference.npz", tokens=tokens.numpy(), logits=logits.numpy())


if __name__ == "__main__":
    main()
