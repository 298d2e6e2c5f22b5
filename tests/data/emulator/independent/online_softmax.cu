// Softmax of rows in one pass: a running maximum and a rescaled sum per lane, merged by shuffles.
struct Running { float top, sum; };

__device__ Running merged(Running a, Running b)
{
    float top = fmaxf(a.top, b.top);
    if (top == -INFINITY) return {top, 0.0f};
    return {top, a.sum * expf(a.top - top) + b.sum * expf(b.top - top)};
}

extern "C" __global__ void online_softmax(const float* x, float* y, int rows, int cols)
{
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const float* from = x + (size_t)row * cols;
    Running state = {-INFINITY, 0.0f};
    for (int c = threadIdx.x; c < cols; c += 32) state = merged(state, {from[c], 1.0f});
    for (int step = 16; step; step >>= 1) {
        Running other;
        other.top = __shfl_xor_sync(0xffffffffu, state.top, step);
        other.sum = __shfl_xor_sync(0xffffffffu, state.sum, step);
        state = merged(state, other);
    }
    for (int c = threadIdx.x; c < cols; c += 32)
        y[(size_t)row * cols + c] = expf(from[c] - state.top) / state.sum;
}
