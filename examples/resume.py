"""A run that survives being killed: start it, kill it, start it again.    python resume.py [FILE]"""

import sys
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ringfence as rf

path = Path(sys.argv[1] if len(sys.argv) > 1 else "digits.ckpt")
images, labels = load_digits(return_X_y=True)
data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 8 - 1, torch.tensor(labels))

torch.manual_seed(0)
model = nn.Linear(64, 10)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=90)
engine = rf.PrivacyEngine(rf.TruncatedGaussian(sigma=2.0, bound=8.0), rf.Clamp(0.05))  # Poisson sampling
model, optimizer, loader = engine.make_private(model, optimizer, DataLoader(data, batch_size=200))
if path.exists():
    engine.load(path, scheduler=scheduler)
    print(f"going on at step {engine.steps}; {engine.account.steps} releases are paid for")
while engine.steps < 90:
    for inputs, labels in loader:
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        scheduler.step()
        if engine.steps % 10 == 0:
            engine.save(path, scheduler=scheduler)  # from here on every release is written down first
claim = engine.guarantee(delta=1e-4)
print(f"{engine.steps} steps, epsilon {claim.epsilon:.3f} for every dataset")
