"""A result says which claims an attack left standing."""

from ringfence.audit.result import AuditResult


def test_results_name_what_fell() -> None:
    result = AuditResult("", 0.01, 0.99, 10, 1.0, {"a": 0.9, "b": 1.0}, exceeded=0.02)
    assert result.violated == ("a", "ex-post")
    assert not result.holds
    assert AuditResult("", 0.01, 0.99, 10, 1.0, {"a": float("nan")}).violated == ("a",)
