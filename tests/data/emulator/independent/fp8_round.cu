// Quantise to both 8-bit formats with saturation, and back.
#include <cuda_fp8.h>
extern "C" __global__ void fp8_round(const float* x, unsigned char* e4m3, unsigned char* e5m2, float* back, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __nv_fp8_e4m3 a(x[i]);
    __nv_fp8_e5m2 b(x[i]);
    e4m3[i] = a.__x;
    e5m2[i] = b.__x;
    back[2 * i] = (float)a;
    back[2 * i + 1] = (float)b;
}
