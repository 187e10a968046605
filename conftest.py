from importlib.util import find_spec

# A kernel can only be imported where its compiler is.
_KERNELS = {"triton": "cuda", "numba": "cpu"}
collect_ignore_glob = [
    f"src/ringfence/training/kernels/*_{device}.py"
    for compiler, device in _KERNELS.items()
    if not find_spec(compiler)
]
# Importing these takes seconds in every process that collects them: their own tests run their examples.
collect_ignore_glob += ["src/ringfence/huggingface.py", "src/ringfence/lightning.py"]
