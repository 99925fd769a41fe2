#error "unsupported on cpu: asynchronous copies (<cuda_pipeline.h>)"
