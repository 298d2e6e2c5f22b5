// uninitialised_read: the last tile is filled to n only, but summed whole.
extern "C" __global__ void fault_short_tile(const float* x, float* y, int n)
{
    __shared__ float tile[64];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    if (i < n) tile[t] = x[i];
    __syncthreads();
    for (int half = 32; half; half >>= 1) {
        if (t < half) tile[t] += tile[t + half];
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = tile[0];
}
