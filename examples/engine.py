"""Any torch model: three objects in, three private objects out, the loop unchanged."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ringfence as rf
from ringfence.training.engine.run import StepReport

images, labels = load_digits(return_X_y=True)
inputs, labels = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 8 - 1, torch.tensor(labels)
train, test = TensorDataset(inputs[:1500], labels[:1500]), (inputs[1500:], labels[1500:])

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(72, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.8)
loader = DataLoader(train, batch_size=250)


def show(report: StepReport) -> None:
    """Print the epsilon so far: it holds for every dataset and may be published, unlike the loss."""
    print(f"step {report.steps}: epsilon {report.guarantee(1e-4).epsilon:.2f}")


engine = rf.PrivacyEngine(
    mechanism=rf.RectifiedGaussian(sigma=8.0, bound=16.0),
    clip=rf.Clamp(0.05),
    sampling="full",  # every example in every step; "poisson" samples batches
    on_step=show,
    public_size=1500,
)
model, optimizer, loader = engine.make_private(model, optimizer, loader)
while engine.steps < 15:
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()

print(f"test accuracy {(model.eval()(test[0]).argmax(dim=1) == test[1]).double().mean():.3f}")
print(engine.guarantee(delta=1e-4).statement)
