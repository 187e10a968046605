"""The table of a comparison says never where a mechanism never arrives."""

from rich.console import Console

from ringfence.paper.comparison.comparison import compare
from ringfence.paper.comparison.table import comparison_table
from tests.paper.comparison.test_comparison import sweep


def test_the_table_holds_the_numbers() -> None:
    result = compare(sweep("gaussian", 1.0) + sweep("truncated", 0.5, best=0.6))
    console = Console(width=200)
    with console.capture() as text:
        console.print(comparison_table(result))
    lines = {line.split("│")[1].strip(): line for line in text.get().splitlines() if line.count("│") > 3}
    assert "2.026; 44.0%" in lines["45%"]  # 10 * 0.45^2 = 2.025, rounded up
    assert "never" in lines["90%"]
    assert "never" not in lines["45%"]
    assert "toy: per-instance epsilon at equal accuracy" in text.get()
