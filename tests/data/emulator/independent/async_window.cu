// Column sums over rows that arrive by cp.async, two rows ahead of their use.
#include <cuda_pipeline.h>
#define STAGES 3
extern "C" __global__ void async_window(const int4* rows, int4* sums, int count)
{
    __shared__ int4 row[STAGES][64];
    int t = threadIdx.x, width = gridDim.x * 64, c = blockIdx.x * 64 + t;
    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < count) __pipeline_memcpy_async(&row[s][t], &rows[s * width + c], 16);
        __pipeline_commit();
    }
    int4 sum = make_int4(0, 0, 0, 0);
    for (int r = 0; r < count; ++r) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads();
        int ahead = r + STAGES - 1;
        if (ahead < count) __pipeline_memcpy_async(&row[ahead % STAGES][t], &rows[ahead * width + c], 16);
        __pipeline_commit();
        int4 v = row[r % STAGES][63 - t];
        sum.x += v.x; sum.y += v.y; sum.z ^= v.z; sum.w = max(sum.w, v.w);
    }
    sums[c] = sum;
}
