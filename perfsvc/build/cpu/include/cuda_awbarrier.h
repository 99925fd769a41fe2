#error "unsupported on cpu: asynchronous barriers (<cuda_awbarrier.h>)"
