import triton


@triton.jit
def add_kernel(x, y, n, BLOCK):
    ...
