// data_race: in each step lane t reads a word that lane t + step writes in the same step.
extern "C" __global__ void fault_warp_step_race(const int* x, int* out)
{
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 64 + t];
    __syncthreads();
    if (t < 32) {
        s[t] += s[t + 32];
        __syncwarp();
        for (int step = 16; step; step >>= 1) {
            s[t] += s[(t + step) & 31];
            __syncwarp();
        }
    }
    if (t == 0) out[blockIdx.x] = s[0];
}
