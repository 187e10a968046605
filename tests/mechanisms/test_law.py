"""What a law says of itself, and what is true of a law that says nothing."""

import torch

import ringfence as rf
from tests.audit.releases import example


class Quiet(rf.StochasticSign):
    """A law that only has a name."""

    name = "sign"  # a name that is taken: this class is in no list of laws


def test_what_a_law_leaves_out_has_a_default() -> None:
    assert (Quiet.label, Quiet.fields(), Quiet.attacked_settings) == ("sign", ("sigma",), {})
    assert not Quiet.exponential_family
    assert Quiet(2.0).settings() == {}
    assert float(Quiet(2.0).information_bound()) == 0.25
    assert rf.Gaussian(1.0).turning_points() == ()
    assert [float(end) for end in rf.RectifiedGaussian(1.0, (-1.0, 3.0)).turning_points()] == [-1.0, 3.0]


def test_a_label_is_not_inherited_with_another_name() -> None:
    class Other(rf.Gaussian):
        name = "gaussian"

    assert (rf.Gaussian.label, Other.label) == ("Gaussian", "gaussian")


def test_known_laws_are_in_alphabetical_order_and_can_be_built_from_their_fields() -> None:
    known = rf.Mechanism.known()
    assert list(known) == sorted(known)
    for law in known.values():
        built = example(law, 1.0, 2.0)
        assert type(built) is law
        assert {*built.settings()} == {*law.attacked_settings}
        assert set(built.parameters()) <= {*law.fields(), "lower", "upper"}
        assert all(isinstance(point, torch.Tensor) for point in built.turning_points())
