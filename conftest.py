from importlib.util import find_spec

# A kernel can only be imported where its compiler is.
_KERNELS = {"triton": "outer_sum_cuda", "numba": "outer_sum_cpu"}
collect_ignore = [
    f"src/ringfence/training/kernels/{name}.py"
    for compiler, name in _KERNELS.items()
    if not find_spec(compiler)
]
