// Millions of reads, a barrier of all blocks, then every word is replaced; twice.
__device__ void all_blocks(unsigned* arrived, unsigned goal)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1);
        while (*(volatile unsigned*)arrived < goal) {}
        __threadfence();
    }
    __syncthreads();
}

extern "C" __global__ void ordered_after_many_reads(unsigned* a, unsigned* arrived, int turns)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    for (int round = 0; round < 2; ++round) {
        unsigned sum = 0;
        for (int k = 0; k < turns; ++k) sum = sum * 3 + a[(t * 7 + k) & 4095];
        all_blocks(arrived, (2 * round + 1) * gridDim.x);
        a[t] = sum;
        all_blocks(arrived, (2 * round + 2) * gridDim.x);
    }
}
