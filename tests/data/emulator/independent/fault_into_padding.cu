// out_of_bounds_read: the last difference of the row reads one word behind it.
extern "C" __global__ void fault_into_padding(const float* x, float* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i + 1] - x[i];
}
