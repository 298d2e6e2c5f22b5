// out_of_bounds_read: the remainder of a negative number is negative, so the ring does not close.
extern "C" __global__ void fault_before_row(const float* x, float* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.5f * (x[(i - 2) % n] + x[(i + 2) % n]);
}
