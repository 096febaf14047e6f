"""Keys and values of dead letters as text for a terminal."""

from codecs import getincrementaldecoder

BYTES_MAX = 120
"""Bytes of a value that are shown."""


def shown(content: bytes | None, bytes_max: int | None = BYTES_MAX) -> str:
    """The first bytes as text on one line, or as hexadecimal digits if they are not text in UTF-8.

    `bytes_max` None: all. Control characters are escaped: a record cannot change the terminal.
    """
    if content is None:
        return "null"
    part = content[:bytes_max]
    text = text_of(part)
    shown = f"0x{part.hex()}" if text is None else _escaped(text)
    more = len(content) - len(part)
    return f"{shown}… ({len(content):,} bytes)" if more else shown


def text_of(content: bytes) -> str | None:
    """None: not text in UTF-8. The end of the content may cut a character, which is left out."""
    if b"\0" in content:  # as in Confluent's wire format, and in no text
        return None
    try:
        return getincrementaldecoder("utf-8")().decode(content)
    except UnicodeDecodeError:
        return None


def _escaped(text: str) -> str:
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
