"""Many settings at once: which mechanism, which bound, which learning rate."""

from sklearn.datasets import load_digits
from sklearn.model_selection import ParameterGrid, train_test_split

import ringfence as rf

images, labels = load_digits(return_X_y=True)
train, test, train_labels, test_labels = train_test_split(images, labels, test_size=0.3, random_state=0)

bounded = (rf.RectifiedGaussian, rf.TruncatedGaussian)
mechanisms = [rf.Gaussian(5.0), *(law(5.0, bound) for law in bounded for bound in (2.5, 20.0))]
grid = ParameterGrid({"mechanism": mechanisms, "learning_rate": [4.0, 16.0], "clip": [0.05]})
probes = [
    rf.LinearProbe(**settings, steps=5, public_center=8.0, public_scale=8.0, random_state=seed)
    for seed, settings in enumerate(grid)
]

fitted = [probe.fit(train, train_labels) for probe in probes]
rows = [(p.score(test, test_labels), p.guarantee(1e-4).per_instance.epsilon, p) for p in fitted]
for accuracy, epsilon, probe in sorted(rows, key=lambda row: -row[0])[:8]:
    print(f"accuracy {accuracy:.3f}  epsilon {epsilon:.3f}  {probe.mechanism!r}, {probe.learning_rate:.0f}")
print("Choosing among many runs on the same data costs privacy too; it is not in these numbers.")
