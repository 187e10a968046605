"""A student that learns from private teachers (PATE), beside a classifier that is trained privately itself.

python pate.py [--features FILE.npz] [--queries 100] [--noise 3 6 12]
"""

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

import ringfence as rf
from ringfence.data.features import read_features

parser = argparse.ArgumentParser()
parser.add_argument("--features", type=Path, help="features of images, as of CIFAR-10; else digits")
parser.add_argument("--queries", type=int, help="held-out images that the teachers label for the student")
parser.add_argument("--noise", type=float, nargs="+", help="standard deviations of the noise of a count")
given = parser.parse_args()

if given.features:  # 250 teachers, of CIFAR-10 with 200 examples each
    data = read_features(given.features)
    private, labels = data.train_features, data.train_labels
    others, truth = data.test_features, data.test_labels
    teachers, queries, noises = 250, given.queries or 1000, given.noise or [20, 40, 80]
else:  # 50 teachers with 25 digits each
    pixels, digits = load_digits(return_X_y=True)
    private, others, labels, truth = train_test_split(pixels / 16, digits, train_size=1250, random_state=0)
    teachers, queries, noises = 50, given.queries or 100, given.noise or [3, 6, 12]
asked, (test, right) = others[:queries], (others[queries:], truth[queries:])
models = [LogisticRegression().fit(private[i::teachers], labels[i::teachers]) for i in range(teachers)]
predictions = np.stack([model.predict(asked) for model in models])  # a row per teacher

print("noise  student    epsilon of PATE, and the accuracy of LinearProbe at the same epsilon, for")
print("                  these votes, secret   these votes, published  every dataset")
for sigma in noises:
    pate = rf.Pate(sigma, classes=range(10), adaptive=False, delta=1e-5)
    student = LogisticRegression(max_iter=300).fit(asked, pate.label(predictions=predictions))
    claim, row = pate.guarantee(), f"{sigma:5.4g}  {student.score(test, right):.3f}"
    few = queries < 200  # too few to gain: what holds for every dataset is smaller
    published = claim.epsilon if few else pate.publish().per_instance_epsilon
    for epsilon in (claim.per_instance.epsilon, published, claim.epsilon):
        probe = rf.LinearProbe(target_epsilon=epsilon, target_delta=1e-5, random_state=0)
        row += f"{epsilon:13.3f}  {probe.fit(private, labels).score(test, right):.3f}    "
    print(row)
print("PATE protects everything that one teacher learned from, LinearProbe one example.")
