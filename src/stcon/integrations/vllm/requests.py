"""What a request asks for, in vLLM's terms: settings, the constraint, and what cannot go with one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from stcon.errors import GrammarError, InvalidOption

if TYPE_CHECKING:
    from stcon.grammar.grammar import Grammar
    from stcon.integrations.vllm.session import SessionMode

Kind: TypeAlias = Literal["json", "json_object", "regex", "choice", "grammar", "structural_tag"]

PREFIX = "stcon_"
_CHOICES = {
    "mode": ("mask", "any", "canonical"),
    "whitespace": ("compact", "json", "pretty", "flexible"),
    "key_order": ("schema", "any"),
}


@dataclass(frozen=True)
class Settings:
    """How constraints are read. An engine has defaults; a request sets others by ``stcon_`` and the name.

    Attributes:
        mode: see `Session`.
        budget: outputs are complete within the request's limit of tokens.
        whitespace, key_order, closed: as in `stcon.compile`.
    """

    mode: SessionMode = "mask"
    budget: bool = True
    whitespace: str = "compact"
    key_order: str = "schema"
    closed: bool = True

    def updated(self, values: Mapping[str, Any], prefix: str = "") -> Settings:
        """These settings with some changed.

        Args:
            values: by name, with `prefix` before it; other names are not looked at if there is a prefix.

        Raises:
            InvalidOption: no such setting, or not one of its values.
        """
        known = {field.name for field in fields(self)}
        changes: dict[str, Any] = {}
        for name, value in values.items():
            if not name.startswith(prefix):
                continue
            setting = name.removeprefix(prefix)
            if setting not in known:
                raise InvalidOption(
                    f"{name}: no such setting; there are {', '.join(prefix + one for one in sorted(known))}"
                )
            changes[setting] = _checked(name, setting, value)
        return replace(self, **changes)


@dataclass(frozen=True)
class Constraint:
    """What an output must be, in vLLM's terms.

    Attributes:
        kind: which of the constraints.
        text: the schema, pattern, grammar …, as JSON where it is data.
        settings: how it is read.
        whitespace_pattern: a pattern for the gaps of JSON, instead of ``settings.whitespace``.
    """

    kind: Kind
    text: str
    settings: Settings
    whitespace_pattern: str | None = None

    def compile(self) -> Grammar:
        """Its grammar.

        Raises:
            GrammarError: it has none that can be enforced.
            InvalidOption: no such kind, or a list of choices that is none.
        """
        from stcon.api import compile_grammar, compile_regex, parse_json
        from stcon.server.grammars import Grammars

        if self.kind == "json":
            return self._json(self.text)
        if self.kind == "json_object":
            return self._json('{"type": "object"}')
        if self.kind == "regex":
            return compile_regex(self.text)
        if self.kind == "choice":
            return Grammars().choice(parse_json(self.text, self.kind))
        if self.kind == "structural_tag":
            return compile_grammar(self.text, syntax="structural_tag")
        if self.kind == "grammar":
            return _compile_grammar(self.text)
        raise InvalidOption(f"a constraint is one of {', '.join(get_args(Kind))}, not {self.kind!r}")

    def _json(self, schema: str) -> Grammar:
        from stcon.grammar import compile_json_schema

        settings = self.settings
        return compile_json_schema(
            schema,
            whitespace=settings.whitespace,  # type: ignore[arg-type]  # `_checked`
            key_order=settings.key_order,  # type: ignore[arg-type]
            closed=settings.closed,
            whitespace_pattern=self.whitespace_pattern,
        )


def check_sampling(params: Any) -> None:
    """Refuse sampling parameters under which a constrained output could not end where it must.

    Args:
        params: vLLM's ``SamplingParams``.

    Raises:
        InvalidOption: naming the parameter.
    """
    if params.ignore_eos:
        raise InvalidOption("ignore_eos: a constrained output ends where its grammar does; leave it out")
    if params.min_tokens:
        raise InvalidOption(
            "min_tokens: it forbids the end where only that may follow; leave it out, or ask for more in the schema"
        )


def _checked(name: str, setting: str, value: Any) -> Any:
    """A setting's value; booleans also as HTTP clients can send them."""
    choices = _CHOICES.get(setting)
    if choices is not None:
        if value not in choices:
            raise InvalidOption(f"{name}: expected one of {', '.join(choices)}, got {value!r}")
        return value
    truth = {True: True, False: False, "true": True, "false": False}
    if not isinstance(value, bool | int | float | str) or value not in truth:
        raise InvalidOption(f"{name}: expected true or false, got {value!r}")
    return truth[value]


def _compile_grammar(text: str) -> Grammar:
    """A context-free grammar as vLLM takes them: EBNF or GBNF, or Lark where no rule has ``::=``."""
    from stcon.api import compile_grammar
    from stcon.errors import InvalidGrammar

    if "::=" not in text:
        return compile_grammar(text, syntax="lark")
    try:
        return compile_grammar(text, syntax="ebnf")
    except InvalidGrammar as error:
        try:
            return compile_grammar(text, syntax="gbnf")
        except GrammarError:
            raise error from None
