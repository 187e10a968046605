"""Every source file has its test file of the same name at the same place, and the other way round."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE, TESTS = ROOT / "src" / "ringfence", ROOT / "tests"

# Source files without a test file of their own, and where their tests are.
WITHOUT = {
    "__main__.py": "one line; cli/test_app.py starts the command line",
    "cli/options.py": "cli/test_app.py: what the commands refuse",
    "data/digits.py": "paper/information/test_rows.py trains on them",
    "data/inside.py": "faults/test_files_are_data.py: names that lead out of a folder",
    "data/parquet.py": "data/test_features.py: one of its four formats",
    "data/images/collection.py": "plain data; every test of a layout reads it",
    "paper/figures.py": "cli/test_figure.py and paper/test_reproduce.py",
    "paper/information/full_size/__main__.py": "paper/information/full_size/test_sweep.py runs the command",
    "paper/sweep/epsilons.py": "paper/sweep/test_batch.py compares them with the account of a single probe",
    "paper/sweep/fair_search.py": "paper/sweep/test_settings.py: the settings of a search",
    "paper/sweep/measured.py": "plain data; paper/sweep/test_batch.py and test_ray.py",
    "progress.py": "a type; every test of long-running work",
    "report/chart.py": "plain data; every test of a chart makes one",
    "report/csv_file.py": "paper/test_reproduce.py reads the files of the figures",
    "report/page/text.py": "report/page/test_layout.py and fuzz/test_report.py",
    "report/page/traces.py": "report/page/test_layout.py and report/page/test_in_browser.py",
    "training/kernels/group_norm_cuda.py": "training/kernels/test_normalisation.py runs for every kernel",
    "training/kernels/normalisation_cuda.py": "training/kernels/test_normalisation.py runs for every kernel",
    "training/kernels/outer_sum_cpu.py": "training/kernels/test_outer_sum.py runs for every kernel",
    "training/kernels/outer_sum_cuda.py": "training/kernels/test_outer_sum.py runs for every kernel",
    "training/kernels/product_sum_cuda.py": "training/kernels/test_product_sum.py runs for every kernel",
    "training/kernels/recorded_cuda.py": "training/per_example/test_recorded_functions.py: every walk",
    "training/probe/file_settings.py": "plain data; training/probe/test_from_file.py: bad settings",
    "training/linear/run_noise.py": "test_noise.py: which runs share noise",
    "training/linear/residual_derivative.py": "training/linear/test_information.py: jacobians by autograd",
}
# Folders of tests that mirror no room: each looks at the whole package.
ACROSS = {"faults", "fuzz", "mutants"}
# Test files in a room that look at several of its files at once.
SHARED = {
    "accounting/test_contract.py": "what every accountant promises",
    "accounting/test_far_out.py": "everything that tabulates, with supports far from 0",
    "accounting/test_margins.py": "the margins of every bound",
    "accounting/test_post_processing.py": "the section of docs/guarantees.md",
    "accounting/test_sampled_exact.py": "sampled bounds against enumeration",
    "accounting/test_scale.py": "the unit of theta does not matter, for every account",
    "accounting/test_sizes.py": "block sizes change no result, for every account",
    "accounting/test_states.py": "saved accounts at their smallest",
    "accounting/test_switches.py": "where one way of computing gives over to the next",
    "mechanisms/test_contract.py": "what every law promises",
    "mechanisms/test_recorded.py": "the numbers that the contract compares with",
    "mechanisms/test_samplers.py": "every sampler against its law",
    "report/page/test_in_browser.py": "the whole page in a browser",
    "training/test_isolation.py": "models that look past their example, however they are trained",
    "training/per_example/fused/test_transformers.py": "models of Hugging Face, in the whole fused pass",
}


def sources() -> set[str]:
    files = SOURCE.rglob("*.py")
    return {path.relative_to(SOURCE).as_posix() for path in files if path.name != "__init__.py"}


def mirrors() -> set[str]:
    files = (path.relative_to(TESTS) for path in TESTS.rglob("test_*.py"))
    return {path.as_posix() for path in files if len(path.parts) > 1 and path.parts[0] not in ACROSS}


def mirrored(source: str) -> str:
    """Where the tests of a source file belong.

    >>> mirrored("mechanisms/secure/grid.py")
    'mechanisms/secure/test_grid.py'
    """
    folder, _, name = source.rpartition("/")
    return f"{folder}/test_{name}" if folder else f"test_{name}"


def test_every_source_file_has_its_test_file() -> None:
    missing = {source for source in sources() - WITHOUT.keys() if not (TESTS / mirrored(source)).exists()}
    assert not missing, "no test file for\n" + "\n".join(sorted(missing))


def test_every_test_file_of_a_room_has_its_source_file() -> None:
    lost = mirrors() - {mirrored(source) for source in sources()} - SHARED.keys()
    assert not lost, "no source file for\n" + "\n".join(sorted(lost))


def test_the_exceptions_are_exceptions() -> None:
    for source in WITHOUT:
        assert source in sources(), source
        assert not (TESTS / mirrored(source)).exists(), source
    for test in SHARED:
        assert (TESTS / test).exists(), test
        assert test not in {mirrored(source) for source in sources()}, test
