"""Public values that are typed in the shell."""

from pathlib import Path

import pytest

from ringfence.cli.public_values import read_domains


@pytest.mark.parametrize(
    ("text", "complaint"), [("region = 3", "must hold a list of values"), ("region", r"domain\.toml: ")]
)
def test_bad_files_of_domains(text: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "domain.toml").write_text(text)
    with pytest.raises(ValueError, match=complaint):
        read_domains([str(tmp_path / "domain.toml")])


def test_domains_in_files(tmp_path: Path) -> None:
    (tmp_path / "domain.json").write_text('{"region": ["north", 7]}')
    assert read_domains([str(tmp_path / "domain.json"), "a=x,"]) == {"region": ["north", 7], "a": ["x", None]}
