#error "unsupported on cpu: 8-bit floating point (<cuda_fp8.h>)"
