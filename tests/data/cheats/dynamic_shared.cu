// The tile's size is declared by the launch.
extern "C" __global__ void transpose(const float* __restrict__ x, float* __restrict__ out, int rows, int cols) {
  extern __shared__ float tile[];
  const int tx = threadIdx.x, col = blockIdx.x * 32 + tx, to = blockIdx.y * 32 + tx;
  for (int i = threadIdx.y; i < 32; i += 8) {
    const int row = blockIdx.y * 32 + i;
    if (row < rows && col < cols) tile[i * 33 + tx] = x[(size_t)row * cols + col];
  }
  __syncthreads();
  for (int i = threadIdx.y; i < 32; i += 8) {
    const int row = blockIdx.x * 32 + i;
    if (row < cols && to < rows) out[(size_t)row * rows + to] = tile[tx * 33 + i];
  }
}
