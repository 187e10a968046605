"""The model and the optimizer that the user gets back, for a training loop that stays as it was."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ringfence.training.engine.model_checks import refuse_layers, refuse_other_parameters
from ringfence.training.per_example.fused.layers.normalisation import is_frozen
from ringfence.training.per_example.inputs import Inputs
from ringfence.training.per_example.model_state import state_of


class PrivateModule(nn.Module):
    """The user's model; what it computes in training goes through ``run``, which makes the private step.

    The outputs in training are leaves of the graph: ``loss.backward()`` stops there, and the parameters
    get no gradient but the released one. Evaluation, and anything under ``torch.no_grad``, goes to the
    model directly, or to a copy while it is in training mode. A normalisation that was frozen (in eval mode)
    stays frozen under ``train()``. The set of trained parameters stays as it was: any change is refused.

    >>> PrivateModule(nn.Linear(2, 1), lambda inputs: torch.zeros(3, 1))(torch.ones(3, 2))
    tensor([[0.],
            [0.],
            [0.]])
    """

    def __init__(self, module: nn.Module, run: Callable[[Inputs], Any]) -> None:
        super().__init__()
        self.module = module
        self._run = torch.compiler.disable(run)  # layers are watched one by one
        self.training = module.training
        self._frozen = [layer for layer in module.modules() if is_frozen(layer)]
        self._trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        self._state: tuple[Any, ...] = ()  # that of the module when it was checked

    def train(self, mode: bool = True) -> Self:
        """Sets the mode of all layers but the frozen ones."""
        super().train(mode)
        for layer in self._frozen:
            layer.eval()
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not self.training:
            return self.module(*args, **kwargs)
        state = state_of(self.module)
        if state != self._state:  # because the user may have changed it
            refuse_layers(self.module)
            refuse_other_parameters(self.module, self._trained)
            self._state = state
        if not torch.is_grad_enabled():  # a pass in training mode may write to the model
            return deepcopy(self.module)(*args, **kwargs)
        for name, value in (*enumerate(args), *kwargs.items()):
            if not isinstance(value, Tensor):
                raise TypeError(
                    "in training the model takes tensors with one row for each example, got "
                    f"{type(value).__name__} as argument {name}"
                )
        return self._run((args, kwargs))

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


class PrivateOptimizer(Optimizer):
    """The user's optimizer, which moves the parameters when ``finish`` says that a gradient was released.

    Everything else (param_groups, state, schedulers) is the user's optimizer itself.

    >>> model = nn.Linear(2, 1)
    >>> PrivateOptimizer(torch.optim.SGD(model.parameters(), lr=0.5), lambda: False).param_groups[0]["lr"]
    0.5
    """

    def __init__(self, optimizer: Optimizer, finish: Callable[[], bool]) -> None:
        # Optimizer.__init__ is not called, because groups and state are those of the optimizer inside.
        self.optimizer = optimizer
        self._finish = finish

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Adds the batch to the sum, and moves the parameters if it was the last part of its step."""
        value = None
        if closure is not None:
            with torch.enable_grad():
                value = closure()
        if self._finish():
            self.optimizer.step()
        return value

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Removes the gradients, which are the last released ones."""
        self.optimizer.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuses: the release of a step has a place for each parameter that the engine began with."""
        raise ValueError("parameters cannot be added to a private optimizer: make a new engine")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["optimizer"], name)

    def __repr__(self) -> str:
        return f"PrivateOptimizer({self.optimizer!r})"
