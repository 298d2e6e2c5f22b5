// out_of_bounds_write: an optional output is written where no pointer was given.
extern "C" __global__ void fault_null_pointer(const float* x, float* y, float* optional)
{
    int t = threadIdx.x;
    y[t] = x[t];
    if (x[t] > 30.0f) optional[t] = x[t];
}
