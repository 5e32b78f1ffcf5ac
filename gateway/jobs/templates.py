"""Messages made from templates: sandboxed, strict about what is missing, bounded in time and size."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_CHARACTERS = 200_000
MAX_TEMPLATE = 20_000
LIMIT_S = 1.0
MAX_FACTOR = 10_000
WIDENING = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs", "format", "format_map"})
NAME = "<template>"


class BadTemplate(ValueError):
    """The template cannot be used, or does not fit what it was given. `place` is where, as in `line 1`."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"{place}: {why}")
        self.place = place
        self.why = why


class _Environment(ImmutableSandboxedEnvironment):
    """Every access and call looks at the clock; what makes texts large is bounded."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def __init__(self, deadline: float) -> None:
        super().__init__(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=False, cache_size=0)
        self._deadline = deadline
        for name in WIDENING & set(self.filters):
            del self.filters[name]
        del self.globals["lipsum"]

    def _check(self) -> None:
        if time.monotonic() > self._deadline:
            raise SecurityError(f"it takes longer than {LIMIT_S:g} s")

    def step(self) -> None:
        """Called by the template itself, once in every pass of a loop."""
        self._check()

    def joined(self, *parts: Any) -> str:
        """`~`, which could double a text with every pass of a loop."""
        self._check()
        text = "".join(map(str, parts))
        if len(text) > MAX_CHARACTERS:
            raise SecurityError(f"a text in it is longer than {MAX_CHARACTERS} characters")
        return text

    def wrap_str_format(self, value: Any) -> Any:
        """`format` is refused like everything that widens."""
        return None

    def getattr(self, obj: Any, attribute: str) -> Any:
        """The name of an object is looked up before the methods of Python's dict: `body.items` is the payload's."""
        self._check()
        if isinstance(obj, dict) and attribute in obj:
            return cast("dict[str, Any]", obj)[attribute]
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        self._check()
        return super().getitem(obj, argument)

    def call(self, context: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        self._check()
        if isinstance(getattr(obj, "__self__", None), str) and getattr(obj, "__name__", "") in WIDENING:
            raise SecurityError(f"{obj.__name__} of a text is not available; use ~ or a filter")
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        self._check()
        if operator == "%" and isinstance(left, str):
            raise SecurityError("% on a text is not available; use ~ or a filter")
        if operator != "%" and any(
            not isinstance(side, int | float) or abs(side) > MAX_FACTOR for side in (left, right)
        ):
            raise SecurityError(f"{operator} takes numbers up to {MAX_FACTOR}")
        return super().call_binop(context, operator, left, right)


class _Bounds(NodeTransformer):
    """Makes every loop look at the clock, and every `~` at its size."""

    def visit_For(self, node: nodes.For, *args: Any, **kwargs: Any) -> nodes.For:  # noqa: N802
        node.body.insert(0, _calling("step", [], node.lineno))
        self.generic_visit(node)
        return node

    def visit_Concat(self, node: nodes.Concat, *args: Any, **kwargs: Any) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _call("joined", node.nodes, node.lineno)


def _call(name: str, arguments: list[nodes.Expr], line: int) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name), arguments, [], None, None, lineno=line)


def _calling(name: str, arguments: list[nodes.Expr], line: int) -> nodes.ExprStmt:
    return nodes.ExprStmt(_call(name, arguments, line), lineno=line)


def check_template(source: str) -> None:
    """Raises BadTemplate when it cannot be read."""
    _parsed(source)


@lru_cache(maxsize=256)
def _parsed(source: str) -> nodes.Template:
    if len(source) > MAX_TEMPLATE:
        raise BadTemplate("template", f"is longer than {MAX_TEMPLATE} characters")
    try:
        environment = _Environment(float("inf"))
        tree = environment.parse(source, NAME)
        environment.compile(tree, NAME, NAME)
    except TemplateSyntaxError as error:
        raise BadTemplate(f"line {error.lineno}", error.message or "cannot be read") from error
    except TemplateError as error:
        raise BadTemplate("template", str(error)) from error
    return tree


def render(source: str, values: Mapping[str, Any]) -> str:
    """The text. Blocks: call it in a thread. Raises BadTemplate with the line that does not work."""
    check_template(source)
    deadline = time.monotonic() + LIMIT_S
    pieces: list[str] = []
    size = 0
    try:
        environment = _Environment(deadline)
        bounded = _Bounds().visit(environment.parse(source, NAME))
        for piece in environment.from_string(bounded).generate(dict(values)):
            size += len(piece)
            if size > MAX_CHARACTERS:
                raise SecurityError(f"its text is longer than {MAX_CHARACTERS} characters")
            if time.monotonic() > deadline:
                raise SecurityError(f"it takes longer than {LIMIT_S:g} s")
            pieces.append(piece)
    except (
        TemplateError,
        ValueError,
        TypeError,
        ArithmeticError,
        LookupError,
        AttributeError,
        RecursionError,
    ) as error:
        raise BadTemplate(_line_of(error), str(error) or type(error).__name__) from error
    return "".join(pieces)


def _line_of(error: BaseException) -> str:
    """The innermost line of the template in the error's traceback."""
    line: int | None = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == NAME:
            line = trace.tb_lineno
        trace = trace.tb_next
    return "template" if line is None else f"line {line}"


def example_body(source: str) -> dict[str, Any]:
    """A payload that fits the names a template uses: `{{ body.build.id }}` gives `{"build": {"id": "example"}}`."""
    body: dict[str, Any] = {}
    for node in _parsed(source).find_all((nodes.Getattr, nodes.Getitem)):
        path = _path_of(node)
        if path is not None:
            _put(body, path)
    return body


def _path_of(node: nodes.Node) -> list[str] | None:
    """The names that lead from `body` to a value; None when it is not of `body`, or not by names."""
    match node:
        case nodes.Name(name="body"):
            return []
        case nodes.Getattr(node=outer, attr=name) | nodes.Getitem(node=outer, arg=nodes.Const(value=str(name))):
            path = _path_of(outer)
            return None if path is None else [*path, name]
        case _:
            return None


def _put(body: dict[str, Any], path: list[str]) -> None:
    *outer, last = path
    inside: dict[str, Any] = body
    for name in outer:
        if not isinstance(inside.get(name), dict):
            inside[name] = {}
        inside = inside[name]
    inside.setdefault(last, "example")
