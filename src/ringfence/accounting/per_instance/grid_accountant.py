"""Accounts of many settings side by side: what ``PerInstanceAccountant`` does, for a block of settings."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.conversion import DEFAULT_ORDERS, checked_orders
from ringfence.accounting.coordinates import Setting, kind_of
from ringfence.accounting.divergence_sums import DivergenceTable
from ringfence.accounting.equivalent_information import equivalent_information
from ringfence.accounting.per_instance import FEW, DivergenceTables, PerInstanceAccountant, ceilings
from ringfence.accounting.per_instance.block_sums import block_maxima, block_sums, exact_sums_of_many
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.mechanisms.base import Mechanism


class GridAccountant:
    """One account for each of several settings, charged together.

    ``shape`` is the shape of one setting's theta. ``table`` may be shared by several accountants with the
    same orders on the same device, so that each page of divergences is filled once; so may ``information``,
    the table of equivalent informations.

    Guarantee: that of ``PerInstanceAccountant``, setting by setting. A law on the whole line is charged
    its upper bound over all theta, which is exact for the Gaussian; a law with tensors of parameters is
    charged from the tables of the ordinary account. Where the whole move may go into one coordinate (a
    ``Sensitivity`` with ``norm`` alone) the coordinate with the largest equivalent information is charged.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> laws = [Gaussian(1.0), TruncatedGaussian(1.0, bound=2.0)]
    >>> grid = GridAccountant(laws, [1e-3, 1e-3], [10_240])
    >>> for _ in range(10):
    ...     grid.step(torch.zeros(2, 10_240))
    >>> [round(account.guarantee(delta=1e-5).per_instance.ex_post_epsilon, 2) for account in grid.accounts()]
    [1.84, 1.61]
    """

    def __init__(
        self,
        mechanisms: Sequence[Mechanism],
        sensitivities: Sequence[float | Sensitivity],
        shape: Sequence[int],
        table: DivergenceTable | None = None,
        information: DivergenceTable | None = None,
    ) -> None:
        if len(mechanisms) != len(sensitivities):
            raise ValueError(f"{len(mechanisms)} mechanisms, but {len(sensitivities)} sensitivities")
        self._table = DivergenceTable(checked_orders(DEFAULT_ORDERS)) if table is None else table
        orders, device = self._table.orders, self._table.device
        self._accounts = [
            PerInstanceAccountant(mechanism, sensitivity, orders)
            for mechanism, sensitivity in zip(mechanisms, sensitivities, strict=True)
        ]
        if information is None:
            information = DivergenceTable(orders, device, equivalent_information)
        self._information = information
        self._settings: dict[int, Setting] = {}  # every coordinate moves
        self._lengths: dict[int, tuple[Setting, float]] = {}  # the whole move may go into one coordinate
        self._others: dict[int, DivergenceTables] = {}
        for i, account in enumerate(self._accounts):
            size = account.sensitivity.binding(torch.Size(shape))
            whole = _on_the_whole_line(account.mechanism)
            if kind_of(account.mechanism) is None or size.farthest.numel() != 1:
                self._others[i] = DivergenceTables(orders)
            elif size.is_plain and not whole:
                self._settings[i] = Setting.of(account.mechanism, float(size.farthest))
            elif size.norm is not None and float(size.farthest) == size.norm and not whole:
                self._lengths[i] = Setting.of(account.mechanism, size.norm), size.norm
            elif not whole:
                self._others[i] = DivergenceTables(orders)
        self._ceilings = self._known_ceilings(torch.empty(tuple(shape)))
        bounded = torch.tensor([pair[1:] for pair in self._ceilings], dtype=torch.float64)
        self._most = (bounded * orders).unsqueeze(1).to(device)  # (settings, 1, orders)
        self._sums = torch.zeros_like(self._most.expand(-1, 2, -1))

    def step(self, theta: Tensor) -> None:
        """Adds one release of each of the first ``len(theta)`` settings. NaN is an error."""
        theta = checks.finite("theta", theta)
        count = len(theta)
        sums = torch.full_like(self._sums[:count], torch.inf)
        if tabled := [i for i in self._settings if i < count]:
            sums[tabled] = self._divergence_sums([self._settings[i] for i in tabled], theta[tabled])
        if longest := [i for i in self._lengths if i < count]:
            settings, norms = zip(*(self._lengths[i] for i in longest), strict=True)
            squares = torch.tensor(norms, dtype=torch.float64).square().view(-1, 1, 1)
            most = block_maxima(self._information, settings, theta[longest])
            sums[longest] = most * (0.5 * squares * self._table.orders).to(most.device)
        for i in (i for i in self._others if i < count):
            account = self._accounts[i]
            own = self._others[i].sums(account.mechanism, theta[i], account.sensitivity)
            sums[i] = own.to(sums.device)
        self._sums[:count] += torch.minimum(sums, self._most[:count])
        for account, (gaussian, bounded) in zip(self._accounts[:count], self._ceilings, strict=False):
            account.gaussian_zcdp += gaussian
            account.bounded_zcdp += bounded
            account.steps += 1

    def _divergence_sums(self, settings: Sequence[Setting], theta: Tensor) -> Tensor:
        """(settings, 2, orders): evaluated where a table would cost more than it saves."""
        if theta[0].numel() <= FEW:
            return exact_sums_of_many(settings, theta, self._table.orders)
        return block_sums(self._table, settings, theta)

    def accounts(self) -> list[PerInstanceAccountant]:
        """The ordinary account of each setting, with the steps so far."""
        for account, sums in zip(self._accounts, self._sums.cpu(), strict=True):
            account.forward, account.backward = sums.clone().unbind(0)
        return list(self._accounts)

    def _known_ceilings(self, theta: Tensor) -> list[tuple[float, float]]:
        """The ``ceilings`` of every setting; equal settings are computed once."""
        known: dict[Any, tuple[float, float]] = {}
        result = []
        for i, account in enumerate(self._accounts):
            key = self._settings.get(i, self._lengths.get(i, i))
            if key not in known:
                known[key] = ceilings(account.mechanism, theta, account.sensitivity)
            result.append(known[key])
        return result


def _on_the_whole_line(mechanism: Mechanism) -> bool:
    """Whether the law is a density on all of the line, like the Gaussian's."""
    support = mechanism.support
    return (
        support.interval is not None
        and not support.atoms
        and all(bool(torch.isinf(end).all()) for end in support.interval)
    )
