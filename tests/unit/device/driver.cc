// Stands in for the CUDA driver in test_cuda_modules.py: it logs the calls that it gets.
#include <cuda.h>
#include <stdio.h>
#include <string.h>

static char log_[4096];
static CUcontext pushed;

extern "C" {

const char *calls() { return log_; }

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    if (strncmp(static_cast<const char *>(image), "//", 2)) return CUDA_ERROR_INVALID_IMAGE;
    *module = reinterpret_cast<CUmodule>(0x1234567890abcdefull);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = reinterpret_cast<CUcontext>(0x7777888899990000ull);
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) {
    pushed = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context) {
    *context = pushed;
    pushed = nullptr;
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
    snprintf(log_ + strlen(log_), 100, "unload %p in %p\n", static_cast<void *>(module), static_cast<void *>(pushed));
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    if (strcmp(name, "_ZN5tiled3sumEPf")) return CUDA_ERROR_NOT_FOUND;
    *function = reinterpret_cast<CUfunction>(reinterpret_cast<unsigned long long>(module) + 1);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal(CUdeviceptr *address, size_t *nbytes, CUmodule, const char *name) {
    *address = 0xfedcba9876543210ull;
    *nbytes = 5000000000ull;
    return strcmp(name, "table") ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction) {
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ? 100000 : -1;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute attribute, int value) {
    const char *name = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ? "shared"
                       : attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED ? "large clusters" : "other";
    snprintf(log_ + strlen(log_), 100, "allow %s %d\n", name, value);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction function, void **parameters, void **extra) {
    if (c->blockDimX > 1024) return CUDA_ERROR_INVALID_VALUE;
    char *at = log_ + strlen(log_);
    at += sprintf(at, "launch %p %u,%u,%u %u,%u,%u %u %p", static_cast<void *>(function), c->gridDimX, c->gridDimY,
                  c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ, c->sharedMemBytes,
                  static_cast<void *>(c->hStream));
    for (unsigned i = 0; i < c->numAttrs; i++) {
        const CUlaunchAttribute &a = c->attrs[i];
        if (a.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            at += sprintf(at, " cluster %u,%u,%u", a.value.clusterDim.x, a.value.clusterDim.y, a.value.clusterDim.z);
        else if (a.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
            at += sprintf(at, " cooperative %d", a.value.cooperative);
        else if (a.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            at += sprintf(at, " programmatic %d", a.value.programmaticStreamSerializationAllowed);
        else
            at += sprintf(at, " unknown %d", a.id);
    }
    if (parameters) at += sprintf(at, " parameters");
    if (extra) {
        if (extra[0] != CU_LAUNCH_PARAM_BUFFER_POINTER || extra[2] != CU_LAUNCH_PARAM_BUFFER_SIZE ||
            extra[4] != CU_LAUNCH_PARAM_END)
            return CUDA_ERROR_UNKNOWN;
        at += sprintf(at, " ");
        for (size_t i = 0; i < *static_cast<size_t *>(extra[3]); i++)
            at += sprintf(at, "%02x", static_cast<unsigned char *>(extra[1])[i]);
    }
    sprintf(at, "\n");
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    *text = error == CUDA_ERROR_NOT_FOUND ? "named symbol not found" : error == CUDA_ERROR_INVALID_VALUE
            ? "invalid argument" : "device kernel image is invalid";
    return CUDA_SUCCESS;
}

}
