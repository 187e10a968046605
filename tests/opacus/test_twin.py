"""The copy that gradients are measured on."""

import pytest
import torch
from torch import nn

opacus = pytest.importorskip("opacus")

from ringfence.opacus.parts import checked_parts  # noqa: E402
from ringfence.opacus.twin import Twin  # noqa: E402
from tests.opacus.runs import gradient_lengths, made_private, network, trained  # noqa: E402


def test_lengths_are_those_of_the_present_parameters_and_nobody_listens() -> None:
    module = network()
    _, model, optimizer, loader = made_private(module)
    twin = Twin(checked_parts(model, optimizer, loader), nn.functional.cross_entropy)
    trained(loader, model, optimizer)
    kept = [parameter.grad_sample for parameter in module.parameters()]
    before = torch.get_rng_state()
    found = twin.lengths()
    assert torch.equal(before, torch.get_rng_state())
    assert all(p.grad_sample is value for p, value in zip(module.parameters(), kept, strict=True))
    assert not any(layer._forward_hooks or layer._backward_hooks for layer in twin.module.modules())
    assert any(layer._forward_hooks for layer in module.modules())
    plain = network()
    plain.load_state_dict(module.state_dict())
    torch.testing.assert_close(found, gradient_lengths(plain), rtol=1e-5, atol=0)
