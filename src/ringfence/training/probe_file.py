"""Linear probes on files of features: what is reported, and saved models."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.data.features import Features
from ringfence.files.atomic import AS_THE_SYSTEM_SAYS, replacing
from ringfence.training.clipping import Clamp
from ringfence.training.private_statistics import FARTHEST
from ringfence.training.probe import LinearProbe

_TAKEN = "Taken to be public: the settings. The test split is not protected."
_QUANTILES = (0.0, 0.1, 0.5, 0.9, 1.0)


def probe_report(
    probe: LinearProbe, data: Features, delta: float, *, examples: bool = False
) -> dict[str, Any]:
    """Returns the settings, accuracy and cost of a fitted probe as plain data, and what was assumed in words.

    Accuracy is that on the test split, which is not protected, or None where the file has no test split. The
    accuracy on the training split would be computed from private data without noise, so it is left out. With
    ``examples``, quantiles of the examples' ex-post epsilons are there too, which are sensitive. The number
    of examples is None where ``public_size`` is given.
    """
    claim, zcdp = probe.guarantee(delta), probe.account_.gaussian_zcdp
    accuracy, quantiles = None, None
    if data.test_features is not None:
        accuracy = float(probe.score(data.test_features, data.test_labels))
    if examples:
        epsilons = probe.example_epsilons(delta)
        # an epsilon of an example, never one between two examples: the higher neighbour
        quantiles = {q: float(np.quantile(epsilons, q, method="higher")) for q in _QUANTILES}
    return {
        "mechanism": repr(probe.mechanism_),
        "clip": probe.clip_.sensitivity if type(probe.clip_) is Clamp else repr(probe.clip_),
        "learning_rate": probe.learning_rate_,
        "training_steps": probe.steps_,
        "momentum": probe.momentum_,
        "unit_rows": probe.unit_rows_,
        "private_scaling": probe.center_ is not None,
        "target_epsilon": probe.target_epsilon,
        "fit_intercept": probe.fit_intercept,
        "public_size": probe.public_size,
        "seed": probe.random_state,
        "secure": probe.secure,
        "training_examples": len(data.train_features) if probe.public_size is None else None,
        "features": data.train_features.shape[1],
        "classes": probe.classes_.tolist(),
        "test_accuracy": accuracy,
        **claim.as_dict(),
        "gaussian_epsilon": PrivacyLoss.of_zcdp(zcdp, zcdp).epsilon(delta),
        "example_epsilons": quantiles,
        "statement": f"{claim.statement}\n\n{_TAKEN}",
    }


def save_probe(probe: LinearProbe, path: Path) -> None:
    """Writes the weights as .safetensors, with the classes in its metadata, and nothing else about the data.

    The scores of the classes are coefficients x + intercepts; of two classes there is one score, above 0 for
    the second. Where the metadata has unit_rows, x is (x - center) / scale divided by its norm. Where it has
    farthest, let r be the root mean square of (x - center) / scale: if it is larger, x is
    center + (x - center) farthest / r.
    """
    arrays: dict[str, Any] = {"coefficients": probe.coef_, "intercepts": probe.intercept_}
    metadata = {"classes": json.dumps(probe.classes_.tolist())}
    if probe.unit_rows_:
        metadata["unit_rows"] = "true"
        arrays["center"] = np.asarray(probe.public_center, dtype=np.float64)
        magnitudes = 1.0 if probe.magnitudes_ is None else probe.magnitudes_
        arrays["scale"] = np.asarray(probe.public_scale, dtype=np.float64) * magnitudes
    elif probe.center_ is not None:
        metadata["farthest"] = repr(FARTHEST)
        arrays |= {"center": probe.center_, "scale": probe.scale_}
    path.parent.mkdir(parents=True, exist_ok=True)
    # in C order, because safetensors writes memory as it lies
    tensors = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
    with replacing(path, mode=AS_THE_SYSTEM_SAYS) as file:
        file.write(save(tensors, metadata=metadata))
