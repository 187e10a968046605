from ringfence.report.versions import installed_versions


def test_versions_name_what_computed() -> None:
    assert {"Python", "ringfence", "torch", "matplotlib"} <= dict(installed_versions()).keys()
