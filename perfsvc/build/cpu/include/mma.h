#error "unsupported on cpu: tensor cores (<mma.h>)"
