r"""Finds the answer that a text of mathematics puts into a box."""

import re

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])[ \t]*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
#: What a box without braces holds, as in ``$\boxed 42$``: the rest of its formula, or of its line.
_BARE = re.compile(r"(?:(?!\\[)\]])[^$\n])*")


def boxed(text: str) -> str:
    r"""Returns the content of the last ``\boxed{}`` or ``\fbox{}`` of a text, with braces or without; empty without
    one."""
    boxes = [*_BOX.finditer(text)]
    start = boxes[-1].end() if boxes else len(text)
    if not text.startswith("{", start):
        bare = _BARE.match(text, start)
        return bare[0].strip().removesuffix(".") if bare else ""
    depth = 0
    for brace in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return text[start + 1 : brace.start()].strip()
    return ""
