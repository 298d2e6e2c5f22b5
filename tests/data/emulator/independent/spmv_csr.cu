// y = A x with A in compressed rows; eight lanes share a row.
template <int lanes>
__device__ double row_dot(const double* values, const int* columns, const double* x, int from, int to)
{
    int lane = threadIdx.x % lanes;
    double sum = 0.0;
    for (int k = from + lane; k < to; k += lanes) sum = fma(values[k], __ldg(&x[columns[k]]), sum);
    for (int step = lanes / 2; step; step /= 2) sum += __shfl_down_sync(~0u, sum, step, lanes);
    return sum;
}

extern "C" __global__ void spmv_csr(const double* values, const int* columns, const int* starts,
                                    const double* x, double* y, int rows)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 8;
    bool inside = row < rows;
    double sum = row_dot<8>(values, columns, x, inside ? starts[row] : 0, inside ? starts[row + 1] : 0);
    if (inside && threadIdx.x % 8 == 0) y[row] = sum;
}
