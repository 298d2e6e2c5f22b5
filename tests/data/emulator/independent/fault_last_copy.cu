// data_race: the last stage is read while its cp.async may be in flight (it waits for all but one).
#include <cuda_pipeline.h>
extern "C" __global__ void fault_last_copy(const int* x, int* y, int tiles)
{
    __shared__ int tile[2][64];
    int t = threadIdx.x, sum = 0;
    __pipeline_memcpy_async(&tile[0][t], &x[t], 4);
    __pipeline_commit();
    for (int k = 0; k < tiles; ++k) {
        if (k + 1 < tiles) {
            __pipeline_memcpy_async(&tile[(k + 1) & 1][t], &x[(k + 1) * 64 + t], 4);
            __pipeline_commit();
        }
        __pipeline_wait_prior(1);
        __syncthreads();
        sum = sum * 3 + tile[k & 1][63 - t];
        __syncthreads();
    }
    y[t] = sum;
}
