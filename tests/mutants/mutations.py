"""Small wrong changes of a source file, one at a time.

Left alone, because no test should hang on them: annotations, docstrings, messages (``raise``,
f-strings, text with spaces, names given to ``checks``), assertions that cannot fail in right code
(``zip(strict=True)``), blocks for type checkers, ``__all__``, the constants in ``SIZES``, and how many
results a cache keeps (``lru_cache(maxsize=8)``).
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

_OTHER_SIGN: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "*"), ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"), ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip
_PAIRS = ("min max", "amin amax", "minimum maximum", "any all", "floor ceil")
_OTHER_NAME = {a: b for pair in _PAIRS for a, b in (pair.split(), pair.split()[::-1])}
_COMMUTES = re.compile(
    r"(^|\.)(min|max|minimum|maximum|logaddexp|broadcast_tensors|broadcast_shapes|transpose|gcd|hypot|total|worst_of)$"
)
_ASIDE = ("strict", "maxsize")  # arguments that no result depends on
_ONE_SIGN = {ast.USub: "-", ast.Not: "not ", ast.Invert: "~"}

# How much is held or kept at once. No result depends on them, which tests/accounting/test_sizes.py, or the
# test of the file, asserts with other sizes: another size shows in memory or time alone.
SIZES = {
    "src/ringfence/accounting/divergence_sums.py": (
        *("_EVALUATED_TOGETHER", "_COUNTED_AT_ONCE", "_COUNTED_AT_ONCE_ELSEWHERE"),
        *("_FILLED_TOGETHER", "_KEPT"),
    ),
    "src/ringfence/accounting/examples.py": (*("_BLOCK", "_BLOCK_ELSEWHERE", "_ANCHORS_AT_ONCE"),),
    "src/ringfence/mechanisms/pieces.py": ("_SHORT",),
    "src/ringfence/numerics/normal.py": ("_SHORT",),
    "src/ringfence/numerics/singular_values.py": ("_NUMBERS",),
    "src/ringfence/accounting/decisions.py": ("_NUMBERS",),
    "src/ringfence/training/kernels/clipped_sums.py": ("_CHUNK_ENTRIES", "_FORMED_ENTRIES"),
    "src/ringfence/training/kernels/outer_sum_cpu.py": ("_SHORT",),
    "src/ringfence/training/linear.py": ("_CHUNK_ENTRIES",),
    "src/ringfence/training/linear_information.py": ("_CPU_ENTRIES, _GPU_ENTRIES",),
    "src/ringfence/releases/ballots.py": ("_KEPT",),
}


@dataclass(frozen=True)
class Mutant:
    """A piece of a file (its place in bytes) and what stands there instead."""

    file: str
    line: int
    start: int
    end: int
    before: str
    after: str
    lines: tuple[int, int]  # of the statement, or of its head
    everywhere: bool  # takes effect outside the function it stands in, if any

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line}:{self.start} {self.before!r} -> {self.after!r}"

    def apply(self, source: str) -> str:
        data = source.encode()
        assert data[self.start : self.end].decode() == self.before, self.name
        return (data[: self.start] + self.after.encode() + data[self.end :]).decode()


def mutants(file: str, source: str) -> list[Mutant]:
    """Every mutant of a file in the order of the lines."""
    visitor = _Visitor(file, source)
    visitor.visit(ast.parse(source))
    return sorted(set(visitor.found), key=lambda mutant: (mutant.start, mutant.end, mutant.after))


class _Visitor(ast.NodeVisitor):
    def __init__(self, file: str, source: str) -> None:
        self.file, self.data = file, source.encode()
        self.first = [0]
        for line in self.data.splitlines(keepends=True):
            self.first.append(self.first[-1] + len(line))
        self.found: list[Mutant] = []
        self.lines = (1, 1)
        self.depth = 0  # of functions whose body runs when a test calls them

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            self.lines = (node.lineno, max(last, node.lineno))
        for start, end, after in self._changes(node):
            before = self.data[start:end].decode()
            if before != after:
                line = self.data.count(b"\n", 0, start) + 1
                self.found.append(
                    Mutant(self.file, line, start, end, before, after, self.lines, self.depth == 0)
                )
        super().visit(node)

    # What is not visited is not changed.
    def visit_Raise(self, node: ast.Raise) -> None: ...
    def visit_JoinedStr(self, node: ast.JoinedStr) -> None: ...
    def visit_Import(self, node: ast.Import) -> None: ...

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if ast.unparse(node.value) != "Literal":
            self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        left_alone = ("__all__", *SIZES.get(self.file, ()))
        if not any(ast.unparse(target).strip("()") in left_alone for target in node.targets):
            self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        function = ast.unparse(node.func)
        self.visit(node.func)
        for argument in (*node.args, *(word for word in node.keywords if word.arg not in _ASIDE)):
            message = isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            if not (message and re.match(r"checks\.|cast$|self\._evaluate|without_nan|warnings\.", function)):
                self.visit(argument)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        kept = any("cache" in ast.unparse(decorator) for decorator in node.decorator_list)
        for outside in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(outside)
        depth, self.depth = self.depth, 0 if kept else self.depth + 1
        for statement in node.body:
            self.visit(statement)
        self.depth = depth

    def _place(self, node: ast.AST) -> tuple[int, int]:
        return (
            self.first[node.lineno - 1] + node.col_offset,  # type: ignore[attr-defined]
            self.first[node.end_lineno - 1] + node.end_col_offset,  # type: ignore[attr-defined]
        )

    def _text(self, node: ast.AST) -> str:
        start, end = self._place(node)
        return self.data[start:end].decode()

    def _sign(self, left: ast.AST, operator: ast.AST, right: ast.AST) -> Iterator[tuple[int, int, str]]:
        """The operator between two operands, exchanged for another one."""
        if type(operator) in _OTHER_SIGN:
            sign, other = _OTHER_SIGN[type(operator)]
            start, end = self._place(left)[1], self._place(right)[0]
            at = start + self.data[start:end].index(sign.encode())
            yield at, at + len(sign), other

    def _changes(self, node: ast.AST) -> Iterator[tuple[int, int, str]]:
        match node:
            case ast.Compare():
                for left, operator, right in zip(
                    (node.left, *node.comparators), node.ops, node.comparators, strict=False
                ):
                    yield from self._sign(left, operator, right)
            case ast.BinOp():
                yield from self._sign(node.left, node.op, node.right)
            case ast.BoolOp():
                for left, right in pairwise(node.values):
                    yield from self._sign(left, node.op, right)
            case ast.AugAssign():
                yield from self._sign(node.target, node.op, node.value)
            case ast.UnaryOp() if type(node.op) in _ONE_SIGN:
                start, _ = self._place(node)
                yield start, start + len(_ONE_SIGN[type(node.op)]), ""
            case ast.Constant(value=bool()):
                yield *self._place(node), str(not node.value)
            case ast.Constant(value=int()):
                yield *self._place(node), str(node.value + 1)
            case ast.Constant(value=float()):
                yield *self._place(node), repr(node.value * 1.5 or 1.0)
            case ast.Constant(value=str()) if " " not in node.value:
                yield *self._place(node), repr(node.value + "?")
            case ast.Name(id=name) if name in _OTHER_NAME:
                yield *self._place(node), _OTHER_NAME[name]
            case ast.Attribute(attr=name) if name in _OTHER_NAME:
                _, end = self._place(node)
                yield end - len(name), end, _OTHER_NAME[name]
            case ast.Return(value=ast.expr() as value) if self._text(value) != "None":
                yield *self._place(value), "None"
            case ast.If() | ast.IfExp():
                for forced in ("True", "False"):
                    yield *self._place(node.test), forced
            case ast.While():
                yield *self._place(node.test), "False"
            case ast.Call(args=[], keywords=[ast.keyword(arg=name) as only]) if name in _OTHER_NAME:
                start, _ = self._place(only)
                yield start, start + len(name), _OTHER_NAME[name]
            case ast.Call(func=function, args=[first, second, *_]) if not (
                _COMMUTES.search(ast.unparse(function)) or any(map(_stays, (first, second)))
            ):
                (start, middle), (then, end) = self._place(first), self._place(second)
                between = self.data[middle:then].decode()
                yield start, end, self._text(second) + between + self._text(first)


def _stays(argument: ast.expr) -> bool:
    """Not to be exchanged with its neighbour: a name for a message, or arguments unpacked."""
    return isinstance(argument, ast.Starred | ast.JoinedStr) or (
        isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    )
