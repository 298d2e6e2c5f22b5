// uninitialised_read: bytes of a tile are copied four at a time, and its last words were never filled.
extern "C" __global__ void fault_component_of_tile(const uchar4* x, uchar4* y, int n)
{
    __shared__ uchar4 tile[64];
    int t = threadIdx.x;
    if (t < n) tile[t] = x[t];
    __syncthreads();
    y[t] = tile[63 - t];
}
