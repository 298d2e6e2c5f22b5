// out_of_bounds_write: a scatter whose key may be -1, in shared memory behind another array.
extern "C" __global__ void fault_negative_index(const int* keys, int* out)
{
    __shared__ int total[32], bins[32];
    int t = threadIdx.x;
    total[t] = 0;
    bins[t] = 0;
    __syncthreads();
    atomicAdd(&bins[keys[t] - 1], 1);
    __syncthreads();
    out[t] = bins[t] + total[31 - t];
}
