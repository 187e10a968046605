import torch
from hypothesis import HealthCheck, settings

# Many small operations: threads that wait for each other made them ten times slower on a busy machine.
torch.set_num_threads(1)

settings.register_profile(
    "default",
    deadline=None,  # machines here are shared; speed is shown in benchmarks/
    derandomize=True,
    max_examples=30,  # `make fuzz` and the profile "long" try thousands
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", settings.get_profile("default"), derandomize=False, max_examples=4000)
settings.load_profile("default")
