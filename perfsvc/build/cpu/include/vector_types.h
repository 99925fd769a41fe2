// All there is of it is in cuda_on_cpu.h.
