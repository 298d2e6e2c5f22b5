// Odd lanes hand words to even lanes of their own warp, which wait for them.
extern "C" __global__ void lane_waits_lane(int* y)
{
    __shared__ volatile int flag[64];
    __shared__ int data[64];
    int t = threadIdx.x;
    flag[t] = 0;
    __syncthreads();
    if (t & 1) {
        data[t] = t * 3;
        __threadfence_block();
        flag[t] = 1;
    } else {
        while (flag[t + 1] == 0) {}
        __threadfence_block();
        data[t] = data[t + 1] + 1;
    }
    y[t] = data[t];
}
