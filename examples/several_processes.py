"""Several processes or machines.    torchrun --nproc-per-node=2 several_processes.py"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ringfence as rf

torch.distributed.init_process_group("gloo")  # "nccl" on GPUs
images, labels = load_digits(return_X_y=True)
data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 8 - 1, torch.tensor(labels))  # all of it

model = nn.parallel.DistributedDataParallel(nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
engine = rf.PrivacyEngine(rf.RectifiedGaussian(sigma=5.0, bound=20.0), rf.Clamp(0.05), sampling="full")
model, optimizer, loader = engine.make_private(model, optimizer, DataLoader(data, batch_size=200))
while engine.steps < 10:
    for inputs, labels in loader:  # this process's share
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()  # at the end of a step: one sum over all processes, one noise, one charge

if torch.distributed.get_rank() == 0:
    accuracy = (model.eval()(data.tensors[0]).argmax(dim=1) == data.tensors[1]).double().mean()
    print(f"training accuracy {accuracy:.3f} (not private)")
    print(f"epsilon {engine.guarantee(delta=1e-4).epsilon:.3f} for every dataset")
torch.distributed.destroy_process_group()
