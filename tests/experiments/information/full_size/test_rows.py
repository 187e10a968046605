"""Rows: what is stored is read, epsilon is the engine's, and unfinished rounds do not count."""

from pathlib import Path

import pytest
from torch import nn, zeros
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset

from experiments.csv_file import write_csv
from experiments.information.full_size.rows import complete, network_file, read_csv, read_network_rows, stored
from experiments.information.full_size.settings import FullSizeSettings, clip_of
from ringfence import PrivacyEngine
from tests.experiments.information.full_size import toys


def test_epsilon_is_that_of_the_engine_after_as_many_steps(tmp_path: Path) -> None:
    settings = toys.SETTINGS.round(0, steps_per_epoch=3)[1]
    model = nn.Linear(2, 2)
    engine = PrivacyEngine(settings.law, clip_of(settings), seed=0)
    private, optimizer, loader = engine.make_private(
        model,
        SGD(model.parameters(), lr=0.0),
        DataLoader(TensorDataset(zeros(30, 2), zeros(30).long()), batch_size=10),
    )
    for inputs, labels in loader:
        nn.functional.cross_entropy(private(inputs), labels).backward()
        optimizer.step()
    assert engine.steps == settings.steps
    public = {"examples": "30", "batch_size": "10", "parameters": "6", "delta": "1e-05"}
    file = network_file(tmp_path, public)
    file.add([stored((settings, 0), 4, 1, {"test_accuracy": 0.5})])
    [row] = read_network_rows(tmp_path)
    assert row.epsilon_data_independent == engine.guarantee(1e-5).epsilon
    assert (row.method, row.round, row.epochs, row.clip) == ("rectified", 4, 1, settings.clip)


def test_csv_holds_everything(swept: Path, tmp_path: Path) -> None:
    rows = read_network_rows(swept)
    assert read_csv(write_csv(rows, tmp_path / "rows.csv")) == rows
    failed = [toys.row("truncated", 1, None, None, error="ValueError: a, b")]
    assert read_csv(write_csv(failed, tmp_path / "rows.csv")) == failed
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(
        ValueError, match=r"other.csv must hold rows of Figure 4 at full size, got \['a', 'b'\]"
    ):
        read_csv(tmp_path / "other.csv")


def test_a_round_counts_when_every_method_has_its_run() -> None:
    rows = [*toys.whole_round(0, 0.5, 1.0), *toys.whole_round(1, 0.6, 2.0)[:-1]]
    assert complete(rows) == rows[:4]
    # a run that ended with an error had its chance
    assert len(complete([*rows, toys.row("Gaussian, L2 clip", 1, None, None, error="no")])) == 8
    assert FullSizeSettings().delta == 1e-5
