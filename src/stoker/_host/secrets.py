"""Hides secrets in what is shown of a text. People paste logs into issues, and explanations below them."""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "•••"
_NAMES = r"(?i:\b[\w.-]{0,40}(?:api[_-]?key|access[_-]?key|secret|token|passw(?:or)?d|credential|authorization)\w{0,20})"
_MAKERS = r"hf_|sk-|[sr]k_live_|gh[pos]_|github_pat_|glpat-|xox[abprs]-|AKIA|ASIA|AIza|ya29\.|npm_|pypi-|dckr_pat_|r8_"
_SIGNATURES = r"(?i:[?&](?:X-Amz-(?:Signature|Credential|Security-Token)|X-Goog-Signature|sig|signature)=)"
_SECRET = re.compile(
    rf"""
      (?P<name>{_NAMES}["']?[ ]{{0,4}}[=:][ ]{{0,4}}["']?(?:(?i:bearer|basic|token)[ ]{{1,4}})?)[^\s"',;)\]}}]{{4,}}
    | (?P<scheme>\b[a-z][a-z0-9+.-]{{1,20}}://[^\s/@:"']{{0,100}}:)[^\s/@"']{{1,200}}(?=@)    # user:password@host
    | \b(?:{_MAKERS})[\w.-]{{12,}}
    | \beyJ[\w-]{{8,}}\.[\w-]{{8,}}\.[\w-]{{4,}}                                               # a signed token
    | (?P<signed>{_SIGNATURES})[^\s&"']{{4,}}
    | (?<![0-9a-zA-Z])(?:[0-9a-f]{{64}}|[0-9a-f]{{40}})(?![0-9a-zA-Z])                        # keys of wandb, and hashes like them
    """,
    re.VERBOSE,
)


def masked(text: str) -> str:
    """The text with dots for what looks like a key, a token, a password or a signature."""
    return _SECRET.sub(_shown, text)


def _shown(match: re.Match[str]) -> str:
    return f"{match['name'] or match['scheme'] or match['signed'] or ''}{HIDDEN}"


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
