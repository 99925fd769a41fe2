#error "unsupported on cpu: cooperative groups (<cooperative_groups.h>)"
