#error "unsupported on cpu: bfloat16 (<cuda_bf16.h>)"
