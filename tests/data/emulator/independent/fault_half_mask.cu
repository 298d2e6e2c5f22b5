// data_race: the barrier of the warp names only the lanes that write.
extern "C" __global__ void fault_half_mask(const int* x, int* y)
{
    __shared__ int s[16];
    int t = threadIdx.x;
    if (t < 16) {
        s[t] = x[t];
        __syncwarp(0xffff);
    }
    y[t] = s[t & 15];
}
