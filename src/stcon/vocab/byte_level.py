"""The printable alphabet in which byte-level BPE writes bytes.

Source: GPT-2's ``bytes_to_unicode``: Latin-1 characters that print stand for themselves, the others follow U+0100.
"""

from __future__ import annotations


def _alphabet() -> str:
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return "".join(chr(byte) if byte in printable else chr(next(others)) for byte in range(256))


BYTE_ALPHABET = _alphabet()
BYTE_OF = {character: byte for byte, character in enumerate(BYTE_ALPHABET)}


def token_bytes(text: str) -> bytes:
    """The bytes of a token; with a character outside the alphabet it stands for itself, as in the library's decoder."""
    try:
        return bytes(map(BYTE_OF.__getitem__, text))
    except KeyError:
        return text.encode()
