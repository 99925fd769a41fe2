#error "unsupported on cpu: cuRAND (<curand_kernel.h>)"
