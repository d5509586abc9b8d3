"""Damages inputs: bytes, JSON documents by their structure, and records of numbers. Pure: the dice decide."""

from __future__ import annotations

import json
from random import Random
from typing import Any

_DEEP, _LONG_NUMBER, _LARGE_NUMBER = "@@deep@@", "@@long number@@", "@@large number@@"
_RAW = {
    f'"{_DEEP}"'.encode(): b"[" * 100_000 + b"]" * 100_000,
    f'"{_LONG_NUMBER}"'.encode(): b"9" * 6000,
    f'"{_LARGE_NUMBER}"'.encode(): b"1" + b"0" * 400,
}
"""What json.dumps cannot write: put in place of these marks."""
_ROOM_BYTES = 1 << 18
"""What a list may grow to. Reading takes longer for larger files, which is no failure."""
NUMBERS: tuple[float, ...] = (
    0, 1, -1, 2, 3, 7, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32, 2**48, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64,
    -(2**31), -(2**63), -(2**64), 10**18, 10**30, 0.5, -0.5, 1e-300, 1e300, 1.7976931348623157e308, float("nan"), float("inf"),
    float("-inf"),
)  # fmt: skip
_TEXTS = (
    "", " ", "x", "\x00", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\u202e", "\ud800", "\n", "\r\n", "\x85", "a\u0300" * 40,
    "x" * 3000, "../../etc/passwd", "/dev/stdin", "file:///etc/passwd", "<script>alert(1)</script>", "</script>", "%s%n", "{0}",
    "{", "| a | b |", "`", "[x](javascript:alert(1))", "nan", "-1", "1e999", "true", "None", "0x10", "١٢", "²", "__class__",
    "stoker", "torch", "process", "thread", "ray", "fetch", "io", "unknown", "worker_lost", "info", "error",
)  # fmt: skip
_MARKS = (
    b"\x00",
    b"\xff",
    b"\x7f",
    b"\r",
    b"\n",
    b"\x1b[2J",
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\\",
    b"\\u0000",
)


def any_bytes(dice: Random, whole: bytes, tokens: tuple[bytes, ...] = ()) -> bytes:
    """One to four edits of bytes; now and then nothing of the input is left."""
    if dice.random() < 0.02:
        return dice.randbytes(dice.choice((0, 1, 3, 7, 64, 1000)))
    data = bytearray(whole)
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        _EDITS[dice.randrange(len(_EDITS))](dice, data, tokens)
    return bytes(data)


def _flip(dice: Random, data: bytearray, _: tuple[bytes, ...]) -> None:
    if data:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def _put(dice: Random, data: bytearray, _: tuple[bytes, ...]) -> None:
    if data:
        data[dice.randrange(len(data))] = dice.choice((0, 255, 127, 128, dice.randrange(256)))


def _cut(dice: Random, data: bytearray, _: tuple[bytes, ...]) -> None:
    del data[dice.randrange(len(data) + 1) :]


def _remove(dice: Random, data: bytearray, _: tuple[bytes, ...]) -> None:
    at = dice.randrange(len(data) + 1)
    del data[at : at + dice.choice((1, 2, 8, 100))]


def _insert(dice: Random, data: bytearray, tokens: tuple[bytes, ...]) -> None:
    at = dice.randrange(len(data) + 1)
    data[at:at] = dice.choice((*_MARKS, *tokens, dice.randbytes(dice.randrange(1, 9))))


def _repeat(dice: Random, data: bytearray, _: tuple[bytes, ...]) -> None:
    at = dice.randrange(len(data) + 1)
    piece = data[at : at + dice.choice((1, 16, 200, 4000))]
    data[at:at] = piece * dice.choice((1, 2, 30))


def _move(dice: Random, data: bytearray, _: tuple[bytes, ...]) -> None:
    at, size = dice.randrange(len(data) + 1), dice.choice((1, 8, 100, 1000))
    piece = data[at : at + size]
    del data[at : at + size]
    to = dice.randrange(len(data) + 1)
    data[to:to] = piece


def _number(dice: Random, data: bytearray, _: tuple[bytes, ...]) -> None:
    size = dice.choice((2, 4, 8))
    if len(data) >= size:
        at = dice.randrange(len(data) - size + 1)
        value = int(dice.choice(NUMBERS[:26]))
        data[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


_EDITS = (_flip, _put, _cut, _remove, _insert, _repeat, _move, _number)


def any_json(dice: Random, whole: bytes) -> bytes:
    """Mostly edits of the structure of a JSON document or of JSON lines; sometimes of bytes, or of both."""
    chosen = dice.random()
    if chosen < 0.15:
        return any_bytes(dice, whole)
    lines = whole.split(b"\n")
    try:
        parsed = [json.loads(each) for each in lines if each] if len(lines) > 1 else [json.loads(whole)]
    except ValueError:  # one document over several lines
        parsed = [json.loads(whole)]
    at = dice.randrange(len(parsed))
    for _ in range(dice.choice((1, 1, 1, 2, 3, 6))):
        parsed[at] = edited(dice, parsed[at])
    if len(parsed) > 1 and dice.random() < 0.1:
        dice.shuffle(parsed)
    data = b"\n".join(dumped(each) for each in parsed)
    if chosen < 0.2:
        data = any_bytes(dice, data)
    return data + b"\n" * (chosen < 0.9)


def dumped(document: Any) -> bytes:
    """A document as bytes, with what json cannot write in place of the marks."""
    data = json.dumps(document, separators=(",", ":")).encode()
    for mark, raw in _RAW.items():
        if mark in data:
            data = data.replace(mark, raw, 2)  # a list may hold a thousand of them
    return data


def edited(dice: Random, document: Any) -> Any:
    """The document after one edit at a random place."""
    if not isinstance(document, dict | list) or not document or dice.random() < 0.01:
        return value(dice, document)
    holder, key = _place(dice, document)
    old = holder[key]
    edit = dice.randrange(10)
    if edit < 6:
        holder[key] = value(dice, old)
    elif edit == 6:
        del holder[key]
    elif edit == 7:  # something else of the document
        other, name = _place(dice, document)
        holder[key] = json.loads(json.dumps(other[name]))
    elif isinstance(holder, list):
        room = max(0, _ROOM_BYTES // (1 + len(json.dumps(old))) - len(holder))
        holder[key:key] = [old] * min(room, dice.choice((1, 2, 1000)))
    elif edit == 8:
        holder[str(dice.choice(_TEXTS))] = old
    else:
        holder[dice.choice(list(holder))] = old
    return document


def _place(dice: Random, document: Any) -> tuple[Any, Any]:
    """A container with something in it, and a key or place in it: at any depth."""
    holder = document
    while True:
        key = dice.choice(list(holder)) if isinstance(holder, dict) else dice.randrange(len(holder))
        inner = holder[key]
        if not isinstance(inner, dict | list) or not inner or dice.random() < 0.15:
            return holder, key
        holder = inner


def value(dice: Random, old: Any) -> Any:
    """Another value: near the old one, of its kind, or of any other."""
    chosen = dice.random()
    if chosen < 0.35 and isinstance(old, int | float) and not isinstance(old, bool):
        return dice.choice(
            (old + 1, old - 1, -old, old * 2, old * 1000, old * 3 // 2, 0, dice.choice(NUMBERS))
        )
    if chosen < 0.35 and isinstance(old, str):
        return dice.choice((old + old, old[:-1], old.upper(), old + "\x1b[7m", *_TEXTS))
    if chosen < 0.45 and isinstance(old, list):
        return dice.choice(([], old[:1], old[1:], old[::-1], old * 2, [old], [None], [[]], [{}], {"0": old}))
    if chosen < 0.45 and isinstance(old, dict):
        return dice.choice(({}, [old], list(old), dict(list(old.items())[:1]), {"": old}))
    return other(dice)


def other(dice: Random) -> Any:
    """A value of any kind."""
    match dice.randrange(11):
        case 0 | 1 | 2:
            return dice.choice(NUMBERS)
        case 3 | 4 | 5:
            return dice.choice(_TEXTS)
        case 6:
            return None
        case 7:
            return dice.random() < 0.5
        case 8:
            return dice.choice(([], {}, [0], [None], {"a": 1}, [[[[[[]]]]]], ["x"] * 50))
        case 9:
            deep: Any = dice.choice(NUMBERS)
            for _ in range(dice.choice((3, 60, 200))):
                deep = [deep] if dice.random() < 0.5 else {"a": deep}
            return deep
        case _:
            return dice.choice((_DEEP, _LONG_NUMBER, _LARGE_NUMBER, [0] * 3000))
