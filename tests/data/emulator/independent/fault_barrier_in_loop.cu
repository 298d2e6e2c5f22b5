// divergent_barrier: lanes of a warp meet the barrier of a loop a different number of times.
extern "C" __global__ void fault_barrier_in_loop(const int* trips, int* out)
{
    __shared__ int s[64];
    int t = threadIdx.x, n = trips[t];
    s[t] = t;
    for (int k = 0; k < n; ++k) {
        __syncthreads();
        if (t == 0) s[k] = k;
    }
    out[t] = n;
}
