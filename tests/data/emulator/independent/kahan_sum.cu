// Compensated sums: every thread adds one column of a matrix, top to bottom.
extern "C" __global__ void kahan_sum(const float* x, float* total, float* lost, int rows, int cols)
{
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= cols) return;
    float sum = 0.0f, carry = 0.0f;
    for (int r = 0; r < rows; ++r) {
        float term = x[r * cols + c] - carry;
        float next = sum + term;
        carry = (next - sum) - term;
        sum = next;
    }
    total[c] = sum;
    lost[c] = carry;
}
