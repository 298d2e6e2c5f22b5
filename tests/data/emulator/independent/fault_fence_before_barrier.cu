// data_race: one thread fences before the barrier, so the others' words are not published.
extern "C" __global__ void fault_fence_before_barrier(const int* x, int* parts, int* out, unsigned* done, int n)
{
    __shared__ bool last;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    parts[i] = x[i] * 2;
    if (threadIdx.x == 0) __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(done, 1) == gridDim.x - 1;
    __syncthreads();
    if (last)
        for (int k = threadIdx.x; k < n; k += blockDim.x) out[k] = parts[n - 1 - k];
}
