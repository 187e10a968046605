from hypothesis import HealthCheck, settings

settings.register_profile(
    "default",
    deadline=None,  # machines here are shared; speed is shown in benchmarks/
    derandomize=True,
    max_examples=200,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", settings.get_profile("default"), derandomize=False, max_examples=4000)
settings.load_profile("default")
