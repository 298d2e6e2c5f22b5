// Inclusive sums that start anew at every head, within one block of up to 32 warps.
extern "C" __global__ void segmented_scan(const int* x, const unsigned char* head, int* y, int n)
{
    __shared__ int tail[32];
    __shared__ bool broken[32];
    int t = threadIdx.x, lane = t & 31, warp = t >> 5;
    int value = t < n ? x[t] : 0;
    bool starts = t < n && head[t];
    unsigned heads = __ballot_sync(~0u, starts);
    unsigned before = heads & (0xffffffffu >> (31 - lane));
    int first = before ? 31 - __clz(before) : 0;
    for (int step = 1; step < 32; step <<= 1) {
        int other = __shfl_up_sync(~0u, value, step);
        if (lane - step >= first) value += other;
    }
    if (lane == 31) {
        tail[warp] = value;
        broken[warp] = heads != 0;
    }
    __syncthreads();
    if (!before)
        for (int w = warp - 1; w >= 0; --w) {
            value += tail[w];
            if (broken[w]) break;
        }
    if (t < n) y[t] = value;
}
