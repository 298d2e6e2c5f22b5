// uninitialised_read: the tail of the last warp has returned, but its values are added.
extern "C" __global__ void fault_shuffle_from_exited(const int* x, int* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int v = x[i];
    for (int step = 16; step; step >>= 1) v += __shfl_down_sync(__activemask(), v, step);
    if ((i & 31) == 0) y[i / 32] = v;
}
