#error "unsupported on cpu: half precision (<cuda_fp16.h>)"
