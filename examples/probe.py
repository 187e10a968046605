"""A private linear classifier in scikit-learn: handwritten digits, one run, what it cost and to whom."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import ringfence as rf

images, labels = load_digits(return_X_y=True)
train, test, train_labels, test_labels = train_test_split(images, labels, test_size=0.3, random_state=0)

probe = rf.LinearProbe(
    mechanism=rf.TruncatedGaussian(sigma=5.0, bound=20.0),
    clip=0.05,  # no example moves a coordinate of the summed gradient by more
    learning_rate=16.0,
    steps=4,
    public_center=8.0,  # pixels are known to lie in 0 .. 16: constants, not statistics of the data
    public_scale=8.0,
    public_size=1257,
    public_classes=range(10),
    random_state=0,
)
probe.fit(train, train_labels)

claim = probe.guarantee(delta=1e-4)
print(f"test accuracy {probe.score(test, test_labels):.3f}")
print(f"epsilon {claim.epsilon:.3f} for every dataset, {claim.per_instance.ex_post_epsilon:.3f} for this run")
each = probe.example_epsilons(delta=1e-4)
print(f"single examples: median {np.median(each):.3f}, largest {each.max():.3f} (sensitive)")
eta = probe.fisher_information_loss()
print(f"Fisher information loss: median {np.median(eta):.3f}, largest {eta.max():.3f} (sensitive)")
