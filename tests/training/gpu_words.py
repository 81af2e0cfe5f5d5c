"""What torch raises where a GPU has no memory left, and where something else is wrong with it."""

from typing import Final

NO_MEMORY: Final = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.81 GiB",
    "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
    "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
    "cuFFT error: CUFFT_ALLOC_FAILED",
    "the parameters (102 MB) could not be page-locked: cudaErrorMemoryAllocation",
    "CUDA driver error: CUDA_ERROR_OUT_OF_MEMORY",
)
OTHER_ERRORS: Final = (
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`",
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_MAPPING_ERROR",
    "CUDA error: device-side assert triggered",
    "CUDA error: an illegal memory access was encountered",
)
