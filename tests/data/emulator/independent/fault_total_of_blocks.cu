// data_race: the first thread of each block adds its block's sum without an atomic.
extern "C" __global__ void fault_total_of_blocks(const int* x, int* total)
{
    int v = __reduce_add_sync(~0u, x[blockIdx.x * 32 + threadIdx.x]);
    if (threadIdx.x == 0) *total += v;
}
