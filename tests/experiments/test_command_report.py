"""``python -m experiments report``: one page, and a publishable one."""

from pathlib import Path

from tests.shell import experiments


def test_report_is_one_page_and_a_publishable_one_has_no_private_number(swept: Path) -> None:
    page = swept / "pages" / "report.html"
    assert experiments("report", swept / "out", "--out", page).returncode == 0
    public = swept / "pages" / "public.html"
    assert experiments("report", swept / "out", "--out", public, "--publishable").returncode == 0
    assert "Did bounded support help?" in page.read_text()
    text = public.read_text()
    assert "Did bounded support help?" not in text
    assert "What may be published" in text
    assert "per-instance" not in text
    refused = experiments("report", swept / "out", "--out", public, "--publishable", "--kind", "per-instance")
    assert refused.returncode != 0
    assert "--kind must be data-independent in a publishable report, got 'per-instance'" in refused.stderr
