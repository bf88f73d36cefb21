"""stcon makes a language model's output follow a JSON Schema, a regular expression or a grammar, exactly.

>>> import stcon
>>> grammar = stcon.compile({"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]})
>>> grammar.accepts('{"age":34}')
True

Every name below is loaded when it is first used, so that importing stcon imports neither torch nor numba.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stcon.api import compile as compile
    from stcon.api import compile_grammar as compile_grammar
    from stcon.api import compile_regex as compile_regex
    from stcon.api import load_model as load_model
    from stcon.api import parse_json as parse_json
    from stcon.constraint.matcher import Matcher as Matcher
    from stcon.errors import DecodingError as DecodingError
    from stcon.errors import GrammarError as GrammarError
    from stcon.errors import InvalidGrammar as InvalidGrammar
    from stcon.errors import InvalidOption as InvalidOption
    from stcon.errors import InvalidPattern as InvalidPattern
    from stcon.errors import InvalidSchema as InvalidSchema
    from stcon.errors import LimitTooSmall as LimitTooSmall
    from stcon.errors import ModelUnavailable as ModelUnavailable
    from stcon.errors import NoRoom as NoRoom
    from stcon.errors import Overloaded as Overloaded
    from stcon.errors import PromptTooLong as PromptTooLong
    from stcon.errors import RequestError as RequestError
    from stcon.errors import StconError as StconError
    from stcon.errors import TooLarge as TooLarge
    from stcon.errors import Unsatisfiable as Unsatisfiable
    from stcon.errors import Unsupported as Unsupported
    from stcon.grammar.grammar import Grammar as Grammar
    from stcon.vocab.vocabulary import Vocabulary as Vocabulary

__version__ = "0.1.0"

_HOME = {
    "compile": "stcon.api",
    "compile_grammar": "stcon.api",
    "compile_regex": "stcon.api",
    "load_model": "stcon.api",
    "parse_json": "stcon.api",
    "Grammar": "stcon.grammar.grammar",
    "Matcher": "stcon.constraint.matcher",
    "Vocabulary": "stcon.vocab.vocabulary",
    "DecodingError": "stcon.errors",
    "GrammarError": "stcon.errors",
    "InvalidGrammar": "stcon.errors",
    "InvalidOption": "stcon.errors",
    "InvalidPattern": "stcon.errors",
    "InvalidSchema": "stcon.errors",
    "LimitTooSmall": "stcon.errors",
    "ModelUnavailable": "stcon.errors",
    "NoRoom": "stcon.errors",
    "Overloaded": "stcon.errors",
    "PromptTooLong": "stcon.errors",
    "RequestError": "stcon.errors",
    "StconError": "stcon.errors",
    "TooLarge": "stcon.errors",
    "Unsatisfiable": "stcon.errors",
    "Unsupported": "stcon.errors",
}

__all__ = [
    "DecodingError",
    "Grammar",
    "GrammarError",
    "InvalidGrammar",
    "InvalidOption",
    "InvalidPattern",
    "InvalidSchema",
    "LimitTooSmall",
    "Matcher",
    "ModelUnavailable",
    "NoRoom",
    "Overloaded",
    "PromptTooLong",
    "RequestError",
    "StconError",
    "TooLarge",
    "Unsatisfiable",
    "Unsupported",
    "Vocabulary",
    "__version__",
    "compile",
    "compile_grammar",
    "compile_regex",
    "load_model",
    "parse_json",
]


def __getattr__(name: str) -> object:
    """Load a public name from its module on first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'stcon' has no attribute {name!r}")
    value: object = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
