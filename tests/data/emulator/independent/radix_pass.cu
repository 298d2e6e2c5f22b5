// One stable pass of a radix sort over a 4-bit digit; one block, ranks from __match_any_sync.
extern "C" __global__ void radix_pass(const unsigned* keys, unsigned* sorted, int n, int shift)
{
    __shared__ int count[32][16];
    __shared__ int base[16];
    int t = threadIdx.x, lane = t & 31, warp = t >> 5, warps = blockDim.x >> 5;
    for (int i = lane; i < 16; i += 32) count[warp][i] = 0;
    __syncwarp();
    unsigned live = __ballot_sync(~0u, t < n);
    unsigned key = 0, digit = 0;
    int rank = 0;
    if (t < n) {
        key = keys[t];
        digit = (key >> shift) & 15;
        unsigned peers = __match_any_sync(live, digit);
        rank = __popc(peers & ((1u << lane) - 1));
        if (rank == 0) count[warp][digit] = __popc(peers);
    }
    __syncthreads();
    if (t < 16) {
        int sum = 0;
        for (int w = 0; w < warps; ++w) {
            int c = count[w][t];
            count[w][t] = sum;
            sum += c;
        }
        int incl = sum;
        for (int step = 1; step < 16; step <<= 1) {
            int other = __shfl_up_sync(0xffff, incl, step, 16);
            if (t >= step) incl += other;
        }
        base[t] = incl - sum;
    }
    __syncthreads();
    if (t < n) sorted[base[digit] + count[warp][digit] + rank] = key;
}
