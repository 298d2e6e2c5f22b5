// out_of_bounds_write: an explicit stack of 8 holds 9 entries for one input.
extern "C" __global__ void fault_stack_overrun(const int* depth, int* out)
{
    int stack[8];
    int top = 0, n = depth[threadIdx.x];
    for (int k = 0; k < 8; ++k) stack[k] = k;
    while (top < n) {
        stack[top] = top * n;
        ++top;
    }
    int sum = 0;
    while (top > 1) sum = sum * 3 + stack[--top & 7];
    out[threadIdx.x] = sum;
}
