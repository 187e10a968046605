import ringfence as rf
from experiments.assembly.ballots import ASSEMBLY, assembly_ballots


def test_the_file_is_what_the_job_reads():
    """The compressed file and the tensor are the same ballots."""
    ballots = assembly_ballots()
    assert ballots.shape == (1921, 99)
    assert set(ballots.unique().tolist()) == {-1, 0, 1}
    release = rf.release_votes(str(ASSEMBLY), ["0", "3"], sigma=10.0)
    assert release.account.details["votes"] == ballots[:, :2].sum(dim=0).tolist()


def test_the_attribution_goes_with_it():
    text = " ".join(ASSEMBLY.with_name("README.md").read_text().split())
    assert "CC BY 4.0" in text
    assert "The Computational Democracy Project" in text
