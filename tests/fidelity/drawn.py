"""Changes to functions that are drawn, not chosen: every comparison, operator, number, bound, sign, condition, default
and order of arguments in a function's syntax tree, one at a time.

A change is known by its function and by what becomes of what, as in ``bad.reward < config.beta -> bad.reward <=
config.beta``: lines may move, and the same piece standing twice is told apart by a number. Texts, and the order of what
commutes, are left as they are.
"""

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.fidelity.mutants import body_of, function_of, remade

#: What each operator is changed to.
_OPERATORS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitAnd: (ast.BitOr,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
_COMMUTE = (ast.Add, ast.Mult, ast.BitOr, ast.BitAnd)
#: Functions that bound, round or gather, and what they are changed to.
_OPPOSITES = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "floor": "ceil",
    "ceil": "floor",
    "pstdev": "pvariance",
    "pvariance": "pstdev",
    "bisect_right": "bisect_left",
}
#: Functions of whose arguments the order says nothing about a rule: it does not matter, or they say why something was
#: left out.
_ANY_ORDER = {"min", "max", "isinstance", "getattr", "zip", "cast", "dropped", "Dropped", "_left_out", "_drop"}


@dataclass(frozen=True)
class Drawn:
    """A change to a function.

    Attributes:
        of: The function, as ``module:name``.
        change: What becomes of what.
        source: The whole function with the change.
    """

    of: str
    change: str
    source: str

    @contextmanager
    def made(self) -> Iterator[None]:
        """Puts the changed code and defaults into the function for a while, wherever it is imported."""
        function = function_of(self.of)
        before = function.__code__, function.__defaults__, function.__kwdefaults__
        other = remade(function, self.source)
        function.__code__, function.__defaults__, function.__kwdefaults__ = (
            other.__code__,
            other.__defaults__,
            other.__kwdefaults__,
        )
        try:
            yield
        finally:
            function.__code__, function.__defaults__, function.__kwdefaults__ = before


def draw(of: str) -> list[Drawn]:
    """Returns all changes to a function, in the order of its source."""
    (tree,) = ast.parse(body_of(function_of(of))).body
    found: list[Drawn] = []
    times = Counter[str]()
    for place, piece in enumerate(_pieces(tree)):
        for other in _others(piece.node, piece.condition):
            whole = copy.deepcopy(tree)
            list(_pieces(whole))[place].put(other)
            change = f"{ast.unparse(piece.node)} -> {ast.unparse(other)}"
            times[change] += 1
            found.append(Drawn(of, change if times[change] == 1 else f"{change} ({times[change]})", ast.unparse(whole)))
    return found


@dataclass(frozen=True)
class _Piece:
    """A node of a syntax tree, and where it stands.

    Attributes:
        condition: Only whether it is true matters there.
    """

    node: ast.AST
    parent: ast.AST
    field: str
    index: int | None
    condition: bool

    def put(self, other: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, other)
        else:
            getattr(self.parent, self.field)[self.index] = other


def _pieces(tree: ast.AST, condition: bool = False) -> Iterator[_Piece]:
    """Yields all below a node but annotations, decorators, texts, and what only guards: assertions, errors, ``strict``
    of ``zip``."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(node, ast.AST) or isinstance(node, ast.Assert | ast.JoinedStr | ast.Raise):
                continue
            if isinstance(node, ast.keyword) and node.arg == "strict":
                continue
            true = name in ("test", "ifs") or (condition and isinstance(tree, ast.BoolOp))
            yield _Piece(node, tree, name, index, true)
            yield from _pieces(node, true)


def _others(node: ast.AST, condition: bool) -> Iterator[ast.AST]:
    """Yields what may stand in place of a piece."""
    match node:
        case ast.Compare():
            for place, operator in enumerate(node.ops):
                for other in _OPERATORS[type(operator)]:
                    yield _with(node, ops=[*node.ops[:place], other(), *node.ops[place + 1 :]])
        case ast.BoolOp():
            yield _with(node, op=_OPERATORS[type(node.op)][0]())
        case ast.UnaryOp(op=ast.USub() | ast.Not()):
            yield node.operand
        case ast.BinOp() | ast.AugAssign():
            for other in _OPERATORS[type(node.op)]:
                yield _with(node, op=other())
            if isinstance(node, ast.BinOp) and not isinstance(node.op, _COMMUTE):
                yield _with(node, left=node.right, right=node.left)
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=(int() | float()) as value):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))
        case ast.Slice():
            for side in ("lower", "upper"):
                if not isinstance(bound := getattr(node, side), ast.Constant | None):
                    yield from (
                        _with(node, **{side: ast.BinOp(bound, operator(), ast.Constant(1))})
                        for operator in (ast.Add, ast.Sub)
                    )
        case ast.Call():
            yield from _other_calls(node)
    if condition and isinstance(node, ast.expr) and not isinstance(node, ast.Compare | ast.BoolOp | ast.UnaryOp):
        yield ast.UnaryOp(ast.Not(), node)


def _other_calls(node: ast.Call) -> Iterator[ast.AST]:
    named = isinstance(node.func, ast.Name)
    name = (
        node.func.id
        if isinstance(node.func, ast.Name)
        else node.func.attr
        if isinstance(node.func, ast.Attribute)
        else ""
    )
    if name in _OPPOSITES:
        yield _with(node, func=_with(node.func, **{"id" if named else "attr": _OPPOSITES[name]}))
    if name not in _ANY_ORDER and not any(isinstance(argument, ast.Starred) for argument in node.args):
        for place in range(len(node.args) - 1):
            one, other = node.args[place : place + 2]
            yield _with(node, args=[*node.args[:place], other, one, *node.args[place + 2 :]])


def _with(node: ast.AST, **fields: Any) -> ast.AST:
    """Returns a copy of a node with other fields."""
    return type(node)(**{**dict(ast.iter_fields(node)), **fields})
