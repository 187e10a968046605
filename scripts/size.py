"""How much there is to read: lines, files, names, and the files that a job passes through.

    python scripts/size.py

Lines of code are those with a token of Python on them: blank lines, comments and docstrings do not count.
"""

import ast
import io
import sys
import tokenize
from collections.abc import Callable
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "ringfence"
_QUIET = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(text: str) -> int:
    """Lines that hold code.

    >>> code_lines('\"\"\"A docstring.\"\"\"\\n\\nx = 1  # one\\n')
    1
    """
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _QUIET:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
                lines -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(lines)


def files_passed(job: Callable[[], object]) -> int:
    """The number of source files whose functions a job runs, other than checks of arguments."""
    seen: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            seen.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        job()
    finally:
        sys.setprofile(None)
    inside = {Path(name).relative_to(SOURCE) for name in seen if name.startswith(str(SOURCE))}
    return sum(path.name not in ("__init__.py", "checks.py", "containers.py") for path in inside)


def jobs() -> dict[str, Callable[[], object]]:
    """The three jobs whose ways are counted; each is run once before, so that imports do not count."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    import ringfence as rf

    def account() -> object:
        law = rf.RectifiedGaussian(1.0, bound=2.0)
        done = rf.PerInstanceAccountant(law, sensitivity=0.01)
        done.step(torch.zeros(100, dtype=torch.float64))
        return done.guarantee(1e-5).statement

    data = TensorDataset(torch.randn(64, 3), torch.zeros(64, dtype=torch.long))
    model = nn.Linear(3, 2)
    engine = rf.PrivacyEngine(rf.RectifiedGaussian(1.0, bound=4.0), rf.Clamp(0.1), seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    private, private_optimizer, loader = engine.make_private(
        model, optimizer, DataLoader(data, batch_size=16)
    )
    batches = (batch for _ in range(9) for batch in loader)

    def step() -> object:
        inputs, labels = next(batches)
        nn.functional.cross_entropy(private(inputs), labels).backward()
        return private_optimizer.step()

    def table() -> object:
        import pandas

        frame = pandas.DataFrame({"region": ["north", "south"] * 40})
        domain = {"region": ["north", "south"]}
        return rf.release_counts(frame, "region", domain=domain, epsilon=1.0, suppress_below=5).statement

    return {"account for a release": account, "training step": step, "table": table}


def main() -> None:
    """Prints the table."""
    import ringfence as rf

    folders = {"src/ringfence": SOURCE, "experiments": ROOT / "experiments", "tests": ROOT / "tests"}
    for name, folder in folders.items():
        texts = [path.read_text() for path in sorted(folder.rglob("*.py"))]
        files = sum(path.name != "__init__.py" for path in folder.rglob("*.py"))
        lines = sum(text.count("\n") for text in texts)
        print(f"{name}: {lines:,} lines, {sum(map(code_lines, texts)):,} of code, in {files} files")
    for name, job in jobs().items():
        job()
        print(f"files passed, {name}: {files_passed(job)}")
    print(f"exported names: {len(rf.__all__)}")


if __name__ == "__main__":
    main()
