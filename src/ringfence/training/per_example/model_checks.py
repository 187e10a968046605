"""Checks of models: layers that cannot be trained privately are refused by name, and so are other changes."""

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.spectral_norm import SpectralNorm

from ringfence.training.per_example.layers import is_frozen


def refuse_layers(model: nn.Module) -> None:
    """Raises a ValueError that names the first layer that cannot be trained privately, and what to do.

    Where a layer's output for one example depends on other examples, clipping an example's gradient does not
    bound its influence, and no account holds. What a layer keeps of its inputs does not pass the mechanism.

    >>> refuse_layers(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2).eval()))
    >>> refuse_layers(nn.Sequential(nn.Linear(2, 2), nn.InstanceNorm1d(2, track_running_stats=True)))
    Traceback (most recent call last):
    ...
    ValueError: layer '1' (InstanceNorm1d) keeps running statistics of private data: use it with \
track_running_stats=False
    """
    for name, layer in model.named_modules():
        reason = _reason_against(layer)
        if reason is not None:
            raise ValueError(f"layer {name!r} ({type(layer).__name__}) {reason}")


def _reason_against(layer: nn.Module) -> str | None:
    if isinstance(layer, LazyModuleMixin) and layer.has_uninitialized_params():
        return "has no parameters yet: call the model once, on an example that is not private"
    if isinstance(layer, _BatchNorm) and not is_frozen(layer):
        return (
            "mixes the examples of a batch: use GroupNorm or LayerNorm, or freeze it: eval() before "
            "make_private, with running statistics of public data"
        )
    if getattr(layer, "track_running_stats", False) and not is_frozen(layer):
        return "keeps running statistics of private data: use it with track_running_stats=False"
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
        if layer.sparse:
            return "has sparse gradients: use sparse=False"
        if layer.max_norm is not None:
            return "changes its weights for the words it sees, outside of any release: use max_norm=None"
    if isinstance(layer, nn.RReLU):
        return "draws slopes, which torch.func cannot do one example at a time: use LeakyReLU"
    if isinstance(layer, _SpectralNorm):
        return "keeps what depends on how often the model was called, hence on the batch: use weight_norm"
    if any(isinstance(hook, SpectralNorm) for hook in layer._forward_pre_hooks.values()):
        return "has spectral_norm, which keeps what depends on how often it was called: use weight_norm"
    return None


def refuse_other_parameters(model: nn.Module, before: dict[str, nn.Parameter]) -> None:
    """Raises a ValueError that names the first parameter that is trained now and was not, or the reverse.

    >>> model = nn.Linear(2, 2)
    >>> trained = dict(model.named_parameters())
    >>> _ = model.bias.requires_grad_(False)
    >>> refuse_other_parameters(model, trained)
    Traceback (most recent call last):
    ...
    ValueError: parameter 'bias' is trained no longer: ...
    """
    now = {name: p for name, p in model.named_parameters() if p.requires_grad}
    for name in {**before, **now}:
        if before.get(name) is not now.get(name):
            what = "is trained no longer" if name not in now else "was not trained before"
            raise ValueError(
                f"parameter {name!r} {what}: the trained parameters are those that make_private saw, make "
                "another engine to train others"
            )


def refuse_random_layers(model: nn.Module) -> None:
    """Raises a ValueError that names the first layer that draws random numbers in training.

    >>> refuse_random_layers(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)))
    Traceback (most recent call last):
    ...
    ValueError: layer '1' (Dropout) draws at random: Fisher information loss is not known for it
    """
    for name, layer in model.named_modules():
        dropout = isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0
        attention = isinstance(layer, nn.MultiheadAttention) and layer.dropout > 0
        if dropout or attention or isinstance(layer, nn.FractionalMaxPool2d | nn.FractionalMaxPool3d):
            raise ValueError(
                f"layer {name!r} ({type(layer).__name__}) draws at random: "
                "Fisher information loss is not known for it"
            )
