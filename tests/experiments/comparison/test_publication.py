"""What may be published of a sweep: no per-instance number, and the choice of settings named."""

from experiments.comparison.publication import publishable_section
from experiments.comparison.winner import winner
from tests.experiments.comparison.test_winner import rows


def test_only_data_independent_epsilons_and_what_they_leave_out() -> None:
    swept = rows("gaussian", 0.9, "norm") + rows("sign", 0.2, "norm", everyone=1.5)
    section = publishable_section([winner(swept)])
    [table] = section.tables
    assert not section.sensitive
    assert not table.sensitive
    assert table.columns == ("clip", "law", "45 %", "70 %", "90 %")
    assert table.rows == (("L2", "Gaussian", "2.03", "5.19", "8.11"), ("L2", "sign", "3.04", "7.78", "12.2"))
    [text] = section.text
    assert "toy, delta 1e-05: 240 runs were made" in text
    assert "neither it nor the other runs are in the epsilons" in text
