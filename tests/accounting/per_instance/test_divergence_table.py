"""Pages of the table: what they hold, when they are filled, how many are kept."""

import pytest
import torch

import ringfence as rf
from ringfence.accounting.per_instance import divergence_table
from ringfence.accounting.per_instance.block_sums import block_sums
from ringfence.accounting.per_instance.divergence_sums import worse_sign
from ringfence.accounting.per_instance.divergence_table import DivergenceTable
from ringfence.accounting.per_instance.equivalent_information import equivalent_information
from ringfence.accounting.per_instance.setting import Setting
from tests.tensors import float64


def test_a_page_is_its_nodes_and_the_steepest_slopes_around_its_cells() -> None:
    law, orders = rf.RectifiedGaussian(0.7, 1.0), float64([2.0, 8.0])
    table, place = DivergenceTable(orders), torch.tensor([-2, 1])
    settings = [Setting.of(law, 0.1), Setting.of(law, 0.3)]
    rows = table.rows(settings, torch.tensor([1, 0]), place)
    for page, where, size in zip(table.pages[rows], place.tolist(), (0.3, 0.1), strict=True):
        theta = (where + torch.arange(-1, 130, dtype=torch.float64) / 128) * 0.7
        both = [worse_sign(law, theta, float64(size), orders, backward) for backward in (False, True)]
        nodes = torch.cat(both)
        slopes = nodes.diff().abs()
        torch.testing.assert_close(page[:, :129], nodes[:, 1:-1], rtol=1e-13, atol=0)
        steepest = torch.stack((slopes[:, :-2], slopes[:, 1:-1], slopes[:, 2:])).amax(dim=0)
        torch.testing.assert_close(page[:, 129:], steepest, rtol=1e-9, atol=0)
    assert torch.equal(table.rows(settings, torch.tensor([0, 1]), place.flip(0)), rows.flip(0))


def test_between_every_eighth_node_the_equivalent_information_is_a_raised_chord() -> None:
    """K is 4, and above order 1.5 by s^2 / 8 more, s the move in units of sigma."""
    law, orders, size = rf.RectifiedGaussian(2.0, 1.0), float64([1.5, 8.0]), 0.6
    table = DivergenceTable(orders, tabulated=equivalent_information)
    rows = table.rows([Setting.of(law, size)], torch.tensor([0]), torch.tensor([-1]))
    ends = equivalent_information(law, 2 * (torch.arange(17).double() / 16 - 1), float64(size), orders)
    share = torch.arange(8).double() / 8
    chords = torch.lerp(ends[..., :-1, None], ends[..., 1:, None], share).flatten(2)
    bends = float64([4 + 0.5 * 0.3**2 / 4, 4.0])
    raised = chords / (1 - bends / 16**2 / 6).view(1, 2, 1)
    torch.testing.assert_close(table.pages[rows][0, :, :128], raised.flatten(0, 1), rtol=1e-12, atol=0)


@pytest.mark.parametrize(("room", "kept"), [(3, [2, 3]), (2, [2, 1])])
def test_pages_are_kept_while_there_is_room(
    monkeypatch: pytest.MonkeyPatch, room: int, kept: list[int]
) -> None:
    pages, releases = DivergenceTable(float64([2.0])), [Setting.of(rf.StochasticSign(1.0), 0.1)]
    monkeypatch.setattr(divergence_table, "_KEPT", room * pages.pages.shape[1:].numel())
    found = []
    for theta in (float64([[0.5, 1.5]]), float64([[2.5, 2.6]])):
        block_sums(pages, releases, theta)
        found.append(len(pages._keys))
    assert found == kept
