"""Extracts from a text what it says beside its wording: process, signal, the line in the user's code, sizes."""

from __future__ import annotations

import re

from stoker._host.code_location import is_stoker
from stoker._tools.doctor.reading.logs import Log

_NEAR_CHARS = 6000
_CLUES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern, re.MULTILINE))
    for name, pattern in (
        ("pid", r"\bpid(?:\(s\))?[ =](\d+(?:, \d+){0,63})"),
        ("worker", r"DataLoader worker process (\d+)|\bworker (\d+) (?:was on|\(pid)"),
        ("signal", r"is killed by signal: ([^\n.(]{1,40}?) ?[.(\n]"),
        ("exit_code", r"exited unexpectedly with exit code (-?\d+)"),
        ("exception", r"Caught (\w+)(?: \w+)? in (?:DataLoader worker|pin memory)"),
        (
            "exception",
            r"^(?:[A-Za-z_]\w*\.){0,8}([A-Z]\w*(?:Error|Exception|Exit|Interrupt|Quit|Died|Timeout|Refused))\b",
        ),
        ("index", r"dataset ind(?:ex|ices) (\[?-?\d+(?:, -?\d+){0,8}\]?)"),
        ("file", r"No such file or directory: [bru]?'([^'\n]{1,300})'"),
        ("bytes", r"(?:allocate|mmap) (\d+) bytes"),
        ("size", r"Unable to allocate (\d+(?:\.\d+)? [KMGT]i?B)"),
        ("shapes", r"got (\[[\d, ]{0,60}\] at entry \d+ and \[[\d, ]{0,60}\] at entry \d+)"),
        (
            "object",
            r"(?:local object |[Cc](?:an't|annot) pickle (?!local))['<]?((?:function |class )?'?[\w.<>]{1,120})",
        ),
        ("start_method", r"popen_(fork|spawn|forkserver)(?:_posix|_win32)?\.py"),
        ("python", r"[\\/]python ?(3\.\d{1,2})[\\/]"),
        ("torch", r"\btorch(?:==|-| )v?(\d\.\d{1,2}(?:\.\d{1,2})?)\b"),
    )
)
_FRAME = re.compile(
    r'File "([^"\n]{1,400})", line (\d{1,7})(?:,? in ([^\n]{1,120}))?'
    r"|^(?P<cell>Cell In\[\d+\]), line (?P<line>\d{1,7})"
    r"|^File (?P<file>[^\n:]{1,300}):(?P<at>\d{1,7}), in (?P<name>[^\n]{1,120})",
    re.MULTILINE,
)
_LIBRARY = re.compile(
    r"site-packages|dist-packages|[\\/]lib[\\/]python\d|[\\/]Lib[\\/](?:multiprocessing|threading|runpy|importlib)|^<frozen|^<string>"
    r"|[\\/]stoker[\\/]_\w+[\\/]|\.pyx$|python\d?\.\d+\.zip|[\\/]torch[\\/](?:utils|nn|_|multiprocessing)|[\\/]multiprocessing[\\/]"
)
_WINDOWS = re.compile(r'File "[A-Za-z]:\\|\[WinError \d|popen_spawn_win32|\.dll\b')
_MAC = re.compile(r'File "/(?:Users|opt/homebrew|Library)/|\.dylib\b|objc\[\d+\]')


def gather(log: Log, place: int) -> dict[str, str]:
    """By name; what stands nearest to ``place`` of the text, where the failure was recognised."""
    start = max(0, place - _NEAR_CHARS)
    near = log.text[start : place + _NEAR_CHARS]
    found: dict[str, str] = {}
    for name, pattern in _CLUES:
        if name in found:
            continue
        matches = list(pattern.finditer(near))
        if matches:
            best = min(matches, key=lambda match: abs(start + match.start() - place))
            found[name] = next(group for group in best.groups() if group is not None).strip("'< ")
    frame = user_frame(near, place - start)
    if frame:
        found["frame"] = frame
    elsewhere = foreign(log.text)
    if elsewhere:
        found["system"] = elsewhere
    return found


def user_frame(text: str, place: int) -> str:
    """The innermost frame in the user's own files: of the traceback below ``place`` if there is one, else of the one above."""
    own = [match for match in _FRAME.finditer(text) if not _is_library(match[1] or match["file"] or "")]
    below = [match for match in own if match.start() > place]
    if not own:
        return ""
    frame = (below or own)[-1]
    if frame["cell"]:
        return f"{frame['cell']}, line {frame['line']}"
    where = f"{frame[1] or frame['file']}:{frame[2] or frame['at']}"
    name = (frame[3] or frame["name"] or "").strip()
    return f"{where} in {name}" if name else where


def _is_library(path: str) -> bool:
    """By the place of the file; a log from another machine goes by the shape of the path, private packages of ours included."""
    return is_stoker(path) or _LIBRARY.search(path) is not None


def foreign(text: str) -> str:
    """The system the text is from, when that is plainly not this one: "Windows", "macOS"."""
    if _WINDOWS.search(text):
        return "Windows"
    return "macOS" if _MAC.search(text) else ""
