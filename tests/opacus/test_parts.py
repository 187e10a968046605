"""What of an Opacus run no account here describes, refused by name."""

from typing import Any

import pytest
from torch import nn

opacus = pytest.importorskip("opacus")

from ringfence.opacus import watch  # noqa: E402
from tests.opacus.runs import made_private, network  # noqa: E402


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"poisson_sampling": False}, "loader must draw Poisson samples"),
        ({"clipping": "per_layer", "max_grad_norm": [1.0, 1.0]}, "got DPPerLayerOptimizer"),
        ({"noise_multiplier": 0.0}, "noise_multiplier must be > 0, got 0.0"),
    ],
)
def test_runs_without_an_account_are_refused(options: dict[str, Any], match: str) -> None:
    engine, model, optimizer, loader = made_private(network(), **options)
    with pytest.raises(ValueError, match=match):
        watch(engine, model, optimizer, loader)


def test_objects_that_opacus_did_not_make_are_refused() -> None:
    engine, model, optimizer, loader = made_private(network())
    for wrong, name in (
        ((nn.Linear(1, 1), optimizer, loader), "model"),
        ((model, optimizer.original_optimizer, loader), "optimizer"),
        ((model, optimizer, list(loader)), "loader"),
    ):
        with pytest.raises(TypeError, match=f"{name} must be what opacus"):
            watch(engine, *wrong)
