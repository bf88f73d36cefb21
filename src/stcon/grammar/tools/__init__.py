"""Replies that may call tools: free text that cannot start a call, then zero or more calls in the model's own format.

::

    REPLY = FREE | FREE CALL (BETWEEN CALL)*

Names, parameter names, types and required ones are those of each tool's JSON Schema, so a call that is finished is
one that its tool takes. `compile_reply` builds the grammar; its `reader` takes a reply apart again, as it is written.

Source: the paper's Section D.8 and Proposition 3.
"""

from stcon.grammar.tools.compile import ReplyGrammar, compile_reply
from stcon.grammar.tools.formats import FORMATS, Format, detect_format
from stcon.grammar.tools.read import Arguments, Begin, Content, End, Event, ReplyReader
from stcon.grammar.tools.schemas import Parameter, Tool, ToolError, read_tools

__all__ = [
    "FORMATS",
    "Arguments",
    "Begin",
    "Content",
    "End",
    "Event",
    "Format",
    "Parameter",
    "ReplyGrammar",
    "ReplyReader",
    "Tool",
    "ToolError",
    "compile_reply",
    "detect_format",
    "read_tools",
]
