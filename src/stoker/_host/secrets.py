"""Makes the texts of others fit to be shown: hides secrets, and takes out what would steer a terminal.

People paste logs into issues, and explanations below them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

HIDDEN = "•••"
_STEERING = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -~])?|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)
_KEYS = (
    r"api[_-]?key|access[_-]?key|secret|token(?!s\b|iz|is|_?(?:id|type|len|count|dim))|passw(?:or)?d|passphrase|_pwd|"
    r"credential|authorization|cookie\b"
)
_NAMES = rf"(?i:\b[\w.-]{{0,40}}(?:{_KEYS})\w{{0,20}})"
_MAKERS = r"hf_|sk-|[sr]k_live_|gh[pos]_|github_pat_|glpat-|xox[abprs]-|AKIA|ASIA|AIza|ya29\.|npm_|pypi-|dckr_pat_|r8_"
_SIGNATURES = r"(?i:[?&](?:X-Amz-(?:Signature|Credential|Security-Token)|X-Goog-Signature|sig|signature)=)"
_BEARER = r"(?:(?i:bearer|basic|token)[ ]{1,4})?"
_LAST = r"(?:password|passwd|token|api-?key|secret)"
_SECRET = re.compile(
    rf"""
      -----BEGIN[ ][A-Z ]{{0,30}}PRIVATE[ ]KEY-----[\s\S]{{0,8000}}?(?:-----END[ ][A-Z ]{{0,30}}PRIVATE[ ]KEY-----|\Z)
    | (?P<name>{_NAMES}\\?["']?[ ]{{0,4}}[=:][ ]{{0,4}}(?P<quote>["'])?{_BEARER})
      (?(quote)(?:(?!(?P=quote))[^\n]){{4,400}}|[^\s"',;)\]}}]{{4,}})
    | (?P<option>(?<!\S)(?:-u[ ]{{1,2}}[\w.@-]{{1,60}}:|--(?i:[\w-]{{0,30}}{_LAST})[ ]{{1,2}}))[^\s-]\S{{3,}}
    | (?P<scheme>\b[a-z][a-z0-9+.-]{{1,20}}://[^\s/@:"']{{0,100}}:)[^\s/@"']{{1,200}}(?=@|…)  # user:password@host
    | \b(?:{_MAKERS})(?:[\w.-]{{12,}}|[\w.-]{{4,}}(?=…))                                       # whole, or cut off
    | \beyJ[\w-]{{8,}}(?:\.[\w-]{{8,}}\.[\w-]{{4,}}|[\w.-]*(?=…))                              # a signed token
    | (?P<signed>{_SIGNATURES})[^\s&"']{{4,}}
    | (?<![0-9a-zA-Z])(?:(?:[0-9a-f]{{64}}|[0-9a-f]{{40}})(?![0-9a-zA-Z])|[0-9a-f]{{16,63}}(?=…))  # keys of wandb, hashes like them
    | (?P<said>(?i:\b(?:passw(?:or)?d|passphrase)[ ]{{1,4}}(?:is[ ]{{1,4}})?))(?=\S{{0,99}}\d)(?=\S{{0,99}}[A-Za-z])[^\s"',;)]{{6,}}
    """,
    re.VERBOSE,
)
_PLAIN = (int, float, bool, type(None))


def cleaned(text: str) -> str:
    """Without what would steer a terminal: a name in a record or an error's text may hold it, and a file may be shown on one."""
    return _STEERING.sub("", text)


def masked(text: str) -> str:
    """The text with dots for what looks like a key, a token, a password or a signature.

    What would steer a terminal goes too: within a secret it would hide that it is one.
    """
    return _SECRET.sub(_shown, cleaned(text))


def masked_values(value: Any) -> Any:
    """The same for all texts in plain values: lists, dicts and what is in them."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, Mapping):
        return {masked_values(key): masked_values(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        found = [each if each.__class__ in _PLAIN else masked_values(each) for each in value]
        return found if isinstance(value, list) else tuple(found)
    return value


def _shown(match: re.Match[str]) -> str:
    return f"{match['name'] or match['option'] or match['scheme'] or match['signed'] or match['said'] or ''}{HIDDEN}"


_OPTION = re.compile(
    r"-{1,2}(?:\w[\w.-]*[-_.])?(?:api[-_]?key|access[-_]?key|secret(?:[-_]?key)?|token|passw(?:or)?d|passphrase|credentials?)",
    re.IGNORECASE,
)


def masked_words(words: Iterable[str]) -> list[str]:
    """The same for a command line, where an option and its value are words of their own: ``--api-key VALUE``."""
    found: list[str] = []
    secret = False
    for word in words:
        hidden = secret and not word.startswith("-")
        found.append(HIDDEN if hidden else masked(word))
        secret = _OPTION.fullmatch(word) is not None
    return found
