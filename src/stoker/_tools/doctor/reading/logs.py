"""Cleans a text as a user has it (a traceback, a log, a notebook's cell): removes colours, prefixes and JSON.

Only what is needed is kept of a long one: its lines near anything that looks like trouble, so that hundreds of megabytes are read
in one pass, in bounded memory. Every line keeps the number it had.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO

from stoker._host import bounded_json

_WHOLE_CHARS = 400_000
"""A text up to this long is kept as it is."""
_KEPT_CHARS = {"sure": (100_000, 250_000), "likely": (50_000, 100_000)}
"""Of a longer one: how much is kept of its first and of its last lines around trouble, which is sure or only likely."""
_BEFORE, _AFTER = 60, 30
"""Lines around one that looks like trouble."""
_NEIGHBOUR_CHARS = 2000
"""Of a line beside trouble so much is kept: endless ones would push the trouble out."""
_PIECE_BYTES = 1 << 16
"""A line longer than this counts as several."""

_SURE = (
    "Traceback (most", "by signal", "unexpectedly", "DataLoader worker", "dataloader.py", "shared memory", "STK", "ickle",
    "ancdata", "oo many open", "OOM", "oom_kill", "ut of memory", "core dumped", "Errno", "forked", "fork()", "stoker",
)  # fmt: skip
_LIKELY = ("Error", "Exception", "DataLoader", "signal", "Killed", "Warning", "worker", "fork")
"""What trouble looks like. Plain words: many of them are found faster than one regular expression of them all."""
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])|[\x00\x01\x08]")
_PREFIX = re.compile(
    r"""[ ]{0,3}(?:
      \[(?:rank|default|local_rank)?[ _]?\d{1,5}\]:?                             # torchrun, Lightning, DeepSpeed
    | \[\d+,\d+\]<std(?:err|out)>:                                               # mpirun
    | \((?:[\w.:<>-]{1,80}[ ])?pid=\d+(?:,[ ]ip=[\w.:]+)?\)                      # Ray
    | \[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?(?:[ ]-|:(?=[ ]))?
    | \d\d:\d\d:\d\d\|[A-Z]\|                                                    # a logger's initials
    | \[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?
    | [A-Z][a-z]{2}[ ]{1,2}\d{1,2}[ ]\d\d:\d\d:\d\d[ ][\w.-]{1,60}[ ][\w.-]{1,40}(?:\[\d+\])?:   # syslog, journalctl
    | std(?:err|out)[ ][FP]                                                      # containerd
    | [IWEF]\d{4}[ ]\d\d:\d\d:\d\d\.\d+[ ]{1,8}\d+[ ][\w./-]{1,80}:\d+\]         # glog
    | [\w.-]{1,60}[ ]{1,20}\|                                                    # docker compose
    | \[?(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\]?[ ]{0,4}(?:[:|]|-(?!>)|(?=[ ]))
    | \d{1,4}:(?=[ ])                                                            # srun -l
    | E(?=[ ]{3})                                                                # pytest
    | >(?=[ ])                                                                   # quoted mail
    | \#[ ]?(?=[ ]*File[ ]"|Traceback|\w+Error:)                                 # commented out
    | (?:\*\*|`{1,3})(?=[\w ]*(?:Error|Exception|Traceback|Interrupt)\b)           # Markdown
    | \^C(?=[A-Z])                                                               # what a terminal shows of Ctrl-C
    )[ ]?""",
    re.VERBOSE,
)
_MOST_PREFIXES = 5
_JSON_KEYS = (
    "log",
    "message",
    "msg",
    "text",
    "event",
    "exc_info",
    "exception",
    "stack_trace",
    "traceback",
    "error",
    "textPayload",
)
_LINK = re.compile(
    r"\[([^\]\n]{1,400})\]\((?:file|vscode-notebook-cell|https?):[^)\n]{0,800}\)|[ ]<https?://localhost[^>\n]{0,80}>"
)
"""A place in a file, as VS Code and Colab show it in a notebook: only its text is kept."""
_BOX_PATH = re.compile(
    r"[│┃] (?=[^\s│┃❱])(?!(?:[^│┃\n]* )?in [^\s│┃]+\s*[│┃]$)([^│┃\n]*?[\\/][^│┃\n]*?)\s*[│┃]$"
)
"""The first line of a path that rich broke: its end, with "in" and a name, is on the next."""
_TYPED = str.maketrans("‘’‛“”：（）", "'''\"\":()")
"""Signs that editors and keyboards put for those that programs print."""
_INDENTED = re.compile(r"([ \t]{1,40})Traceback \(most recent call last\):$")
_CONTINUED = "\x01"
_FRAMES = ("─", "━", "╭", "╰", "╮", "╯")
_MOST_BLANK = 3
"""Blank lines in a row that are kept."""
_WIDTHS = (80, 100, 120, 132)
"""At which terminals break lines in the middle of words."""


@dataclass(frozen=True, slots=True)
class Log:
    """``text`` is plain. ``whole`` is False when lines far from trouble were left out."""

    text: str
    starts: tuple[int, ...]
    numbers: tuple[int, ...]
    whole: bool = True

    def at(self, place: int) -> tuple[int, str]:
        """The number of the line that ``place`` of the text lies in, and the line."""
        found = bisect_right(self.starts, place) - 1
        if found < 0:
            return 0, ""
        end = self.text.find("\n", place)
        return self.numbers[found], self.text[self.starts[found] : end if end >= 0 else None].strip()


def of_text(text: str) -> Log:
    """A text that somebody has in hand."""
    return _read(text.splitlines(keepends=True) if len(text) <= _WHOLE_CHARS else _lines(text))


def of_file(file: BinaryIO) -> Log:
    """A file or a pipe, read to its end once."""
    return _read(_decoded(file))


def _lines(text: str) -> Iterator[str]:
    # A line on the edge of a megabyte is cut in two, which does no harm.
    for start in range(0, len(text), 1 << 20):
        yield from text[start : start + (1 << 20)].splitlines()


def _decoded(file: BinaryIO) -> Iterator[str]:
    first = file.readline(_PIECE_BYTES)
    encoding = next(
        (
            name
            for mark, name in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
            if first.startswith(mark)
        ),
        None,
    )
    if encoding is not None:  # PowerShell's > writes it
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        rest = decoder.decode(first)
        while piece := file.read(_PIECE_BYTES):
            *whole, rest = (rest + decoder.decode(piece)).split("\n")
            yield from whole
        yield rest
        return
    line = first.removeprefix(codecs.BOM_UTF8)
    while line:
        yield line.decode("utf-8", "replace")
        line = file.readline(_PIECE_BYTES)


def _read(lines: Iterable[str]) -> Log:
    everything: list[tuple[int, str]] | None = []
    chars = 0
    windows = {tier: _Windows(*room) for tier, room in _KEPT_CHARS.items()}
    number = blank = 0
    for number, line in enumerate(lines, 1):
        blank = blank + 1 if line in ("\n", "\r\n", "") else 0
        if blank > _MOST_BLANK:
            continue
        if everything is not None:
            everything.append((number, line))
            chars += len(line)
            if chars > _WHOLE_CHARS:
                everything = None
        sure = any(word in line for word in _SURE)
        windows["sure"].take(number, line, sure)
        windows["likely"].take(number, line, not sure and any(word in line for word in _LIKELY))
    kept = (
        everything if everything is not None else sorted({*windows["sure"].kept(), *windows["likely"].kept()})
    )
    return _joined(kept, whole=everything is not None)


class _Windows:
    """Lines around trouble: the first ones, and the last ones."""

    def __init__(self, head_chars: int, tail_chars: int) -> None:
        self._room = head_chars, tail_chars
        self._before: deque[tuple[int, str]] = deque(maxlen=_BEFORE)
        self._after = 0
        self._head: list[tuple[int, str]] = []
        self._head_chars = 0
        self._tail: deque[tuple[int, str]] = deque()
        self._tail_chars = 0

    def take(self, number: int, line: str, trouble: bool) -> None:
        if trouble:
            while self._before:
                self._keep(*self._before.popleft())
            self._keep(number, line)
            self._after = _AFTER
        elif self._after:
            self._after -= 1
            self._keep(number, line[:_NEIGHBOUR_CHARS])
        else:
            self._before.append((number, line[:_NEIGHBOUR_CHARS]))

    def kept(self) -> list[tuple[int, str]]:
        return [*self._head, *self._tail]

    def _keep(self, number: int, line: str) -> None:
        if self._head_chars < self._room[0]:
            self._head.append((number, line))
            self._head_chars += len(line)
            return
        self._tail.append((number, line))
        self._tail_chars += len(line)
        while self._tail_chars > self._room[1]:
            self._tail_chars -= len(self._tail.popleft()[1])


def _joined(kept: list[tuple[int, str]], *, whole: bool) -> Log:
    plain = list(_outdented((number, each) for number, line in kept for each in _plain(line)))
    breaks = _break_width([line for _, line in plain])
    parts: list[str] = []
    starts: list[int] = []
    numbers: list[int] = []
    place = blank = 0
    for (number, line), following in pairwise([*plain, (0, "")]):
        blank = 0 if line.strip() else blank + 1
        if blank > _MOST_BLANK:
            continue
        starts.append(place)
        numbers.append(number)
        goes_on = len(line) == breaks and following[1][:1].strip() and line[-1:].strip()
        if line.endswith(_CONTINUED):
            line, goes_on = line[:-1] + " " * line.endswith(f" in{_CONTINUED}"), following[1][:1].strip()
        parts.append(line if goes_on else line + "\n")
        place += len(parts[-1])
    return Log("".join(parts), tuple(starts), tuple(numbers), whole)


def _outdented(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Moves tracebacks to the left that stand indented, in a summary or in code that somebody quotes."""
    indent = ""
    for number, line in lines:
        head = _INDENTED.match(line)
        if head:
            indent = head[1]
        elif line.strip() and not line.startswith(indent):
            indent = ""
        yield number, line[len(indent) :] if line.startswith(indent) else line


def _break_width(lines: list[str]) -> int:
    """The width at which a terminal broke lines; 0 when nothing speaks for it."""
    lengths = Counter(len(line) for line in lines)
    widest = max(lengths, default=0)
    return widest if widest in _WIDTHS or (60 <= widest <= 250 and lengths[widest] > 2) else 0


def _plain(line: str, depth: int = 0) -> list[str]:
    """What a line says, without what it is wrapped in: usually one line, several for JSON and for progress bars."""
    line = _ANSI.sub("", line) if any(each in line for each in "\x1b\x00\x01\x08") else line
    line = line.rstrip("\r\n")
    if "\r" in line:
        return [each for part in line.split("\r") if part.strip() for each in _plain(part, depth)]
    if depth < 2:
        told = _json_text(line)
        if told is None and "\\n" in line and "\\n  File " in line:
            told = line.replace("\\r", "").replace("\\n", "\n").replace('\\"', '"').replace("\\'", "'")
        if told is not None:
            return [each for part in told.splitlines() for each in _plain(part, depth + 1)]
    for _ in range(_MOST_PREFIXES):
        match = _PREFIX.match(line)
        if match is None:
            break
        line = line[match.end() :]
    if not line.isascii():
        line = line.translate(_TYPED)
    if "](" in line or "<http" in line:
        line = _LINK.sub(lambda match: match[1] or "", line)
    if line[:1] in ("│", "┃"):  # rich draws a box around tracebacks
        path = _BOX_PATH.match(line)
        line = (
            f"{path[1]}{_CONTINUED}"
            if path
            else line.strip("│┃").strip(" ")
            if line[1:3].strip()
            else line.strip("│┃").rstrip()
        )
    if line[:1] in _FRAMES:
        line = line.strip("".join(_FRAMES)).strip()
    if depth < 2 and line.startswith("{"):
        told = _json_text(line)
        if told is not None:
            return [each for part in told.splitlines() for each in _plain(part, depth + 1)]
    return [line]


def _json_text(line: str) -> str | None:
    """The text in a line of JSON, as container runtimes and structured loggers write it."""
    bare = line.strip()
    if not (bare.startswith("{") and bare.endswith("}") and len(bare) <= _PIECE_BYTES):
        return None
    try:
        found = bounded_json.loads(bare)
    except ValueError:
        return None
    texts = [found[key] for key in _JSON_KEYS if isinstance(found.get(key), str)]
    inner = found.get("jsonPayload")
    if isinstance(inner, dict):
        texts += [inner[key] for key in _JSON_KEYS if isinstance(inner.get(key), str)]
    return "\n".join(texts) if texts else None
