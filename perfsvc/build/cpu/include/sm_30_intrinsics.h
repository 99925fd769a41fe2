// Empty: cuda_on_cpu.h has what kernels use of it.
