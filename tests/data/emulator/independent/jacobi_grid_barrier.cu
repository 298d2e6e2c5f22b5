// Sweeps of a 1-D relaxation over the whole grid, with a barrier of all blocks between sweeps.
__device__ void all_blocks(unsigned* arrived, volatile unsigned* round)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned mine = *round;
        __threadfence();
        if (atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1) {
            __threadfence();
            *round = mine + 1;
        } else {
            while (*round == mine) __nanosleep(20);
        }
        __threadfence();
    }
    __syncthreads();
}

extern "C" __global__ void jacobi_grid_barrier(double* a, double* b, unsigned* words, int n, int sweeps)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int s = 0; s < sweeps; ++s) {
        const double* from = s & 1 ? b : a;
        double* to = s & 1 ? a : b;
        if (i < n) to[i] = i == 0 || i == n - 1 ? from[i] : 0.5 * (from[i - 1] + from[i + 1]);
        all_blocks(words, words + 1);
    }
}
