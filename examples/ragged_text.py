"""Text of different lengths: a batch sampler that puts like to like, and a collate_fn that pads.

python examples/ragged_text.py                   # some seconds; how much of a batch is padding, made in two ways
python examples/ragged_text.py --num-workers 0   # the same numbers

The texts are generated in three made-up languages, of 4 to 400 letters. Batches hold about as many letters each and not
as many texts; they come out of the workers in shared memory, whatever their shape.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import nn
from torch.utils.data import Dataset, Sampler

from stoker import DataLoader, share

SYLLABLES = (
    ("ka", "lo", "mi", "tu", "na"),
    ("str", "ing", "olf", "erk", "an"),
    ("a", "io", "lle", "no", "ka"),
)
LONGEST = 400


def text(language: int, rng: random.Random) -> str:
    """Words of a language; short texts are many, long ones few."""
    length = min(LONGEST, max(4, int(rng.lognormvariate(3.8, 0.9))))
    words = "".join(rng.choice((*SYLLABLES[language], " ")) for _ in range(length))
    return words[:length]


class Texts(Dataset[tuple[torch.Tensor, int]]):
    """Texts as the numbers of their letters, each with the number of its language."""

    def __init__(self, count: int, seed: int) -> None:
        rng = random.Random(seed)
        made = [text(number % len(SYLLABLES), rng) for number in range(count)]
        self.lengths = [len(each) for each in made]
        # Without this, a hundred million texts would be copied into every worker, bit by bit: docs/memory.md.
        self.texts = share(made)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        letters = torch.tensor([ord(letter) % 32 for letter in self.texts[index]], dtype=torch.uint8)
        return letters, index % len(SYLLABLES)


class LikeToLike(Sampler[list[int]]):
    """Batches of texts that are about as long, shuffled, each with at most ``letters`` letters, padding included.

    Its generator is an attribute of that name, so that it travels in ``loader.state_dict()``.
    """

    def __init__(self, lengths: list[int], letters: int, seed: int) -> None:
        self.lengths = torch.tensor(lengths)
        self.letters = letters
        self.generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[list[int]]:
        # A little noise on the lengths: the same texts do not meet in every epoch.
        noise = 1 + 0.1 * torch.rand(len(self.lengths), generator=self.generator)
        batches: list[list[int]] = [[]]
        longest = 0
        for index in torch.argsort(self.lengths * noise).tolist():
            longest = max(longest, int(self.lengths[index]))
            if longest * (len(batches[-1]) + 1) > self.letters and batches[-1]:
                batches.append([])
                longest = int(self.lengths[index])
            batches[-1].append(index)
        for place in torch.randperm(len(batches), generator=self.generator).tolist():
            yield batches[place]


class Batch(NamedTuple):
    """Texts side by side; behind the end of each stand zeros."""

    letters: torch.Tensor
    lengths: torch.Tensor
    labels: torch.Tensor


def padded(rows: list[tuple[torch.Tensor, int]]) -> Batch:
    """The collate_fn: as wide as the longest text."""
    texts, labels = zip(*rows, strict=True)
    return Batch(
        nn.utils.rnn.pad_sequence(list(texts), batch_first=True),
        torch.tensor([len(each) for each in texts]),
        torch.tensor(labels),
    )


class Network(nn.Module):
    """Pairs of neighbouring letters, averaged over the text."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs = nn.Embedding(32 * 32, 16)
        self.out = nn.Linear(16, len(SYLLABLES))

    def forward(self, batch: Batch) -> torch.Tensor:
        """Scores of the languages."""
        letters = batch.letters.long()
        pairs = letters[:, :-1] * 32 + letters[:, 1:]
        there = (torch.arange(pairs.shape[1]) < batch.lengths[:, None] - 1).unsqueeze(2)
        mean = (self.pairs(pairs) * there).sum(1) / (batch.lengths[:, None] - 1)
        scores: torch.Tensor = self.out(mean)
        return scores


def padding(loader: DataLoader[tuple[torch.Tensor, int]]) -> float:
    """The share of an epoch's letters that are padding."""
    room = used = 0
    for batch in loader:
        room += batch.letters.numel()
        used += int(batch.lengths.sum())
    return 1 - used / room


def main() -> None:
    """Compare two ways to make batches, then train with the better one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", type=int, default=3000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--letters", type=int, default=2048, help="of a batch, at most")
    parser.add_argument("--num-workers", type=int, default=2)
    given = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)  # for so small a network more are slower, and take CPUs from the workers
    texts = Texts(given.texts, seed=1)
    shuffled = DataLoader(
        texts, batch_size=32, shuffle=True, collate_fn=padded, num_workers=given.num_workers
    )
    print(f"batches of 32 texts: {padding(shuffled):.0%} padding")
    loader = DataLoader(
        texts,
        batch_sampler=LikeToLike(texts.lengths, given.letters, seed=2),
        collate_fn=padded,
        num_workers=given.num_workers,
        name="texts",
    )
    print(f"batches of {given.letters} letters, like to like: {padding(loader):.0%} padding")

    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    for epoch in range(given.epochs):
        right = total = 0
        for batch in loader:
            scores = model(batch)
            loss = nn.functional.cross_entropy(scores, batch.labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            right += int((scores.argmax(1) == batch.labels).sum())
            total += len(batch.labels)
        print(f"epoch {epoch}: {right / total:.1%} of {total} texts recognised while training")


if __name__ == "__main__":
    main()
