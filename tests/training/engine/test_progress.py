"""What people see while a model trains."""

import io

from rich.console import Console
from torch import nn

from ringfence.training.engine.progress import StepProgress
from tests.training.engine.runs import Run


def test_a_terminal_sees_step_loss_and_the_epsilon_that_may_be_published() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100)
    with StepProgress(steps=3, delta=1e-5, console=console) as progress:
        run = Run(on_step=progress, loss=nn.functional.cross_entropy).train(3)
    text = file.getvalue()
    assert "3/3" in text
    claim = run.engine.guarantee(1e-5)
    assert f"epsilon {claim.epsilon:.4g}" in text
    assert f"{claim.per_instance.ex_post_epsilon:.4g}" not in text
    assert "loss 0." in text


def test_nothing_is_written_where_nobody_looks() -> None:
    file = io.StringIO()
    with StepProgress(steps=3, delta=1e-5, console=Console(file=file)) as progress:
        Run(on_step=progress).train(3)
    assert file.getvalue() == ""
