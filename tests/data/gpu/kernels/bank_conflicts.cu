// Each block doubles a 32 x 32 tile and reads shared memory by columns: 32-way conflicts.
extern "C" __global__ void k(const float* __restrict__ x, float* __restrict__ y, int n) {
  __shared__ float tile[32][32];
  const int row = threadIdx.x / 32, lane = threadIdx.x % 32, first = blockIdx.x * 1024;
  tile[lane][row] = first + row * 32 + lane < n ? x[first + row * 32 + lane] : 0.0f;
  __syncthreads();
  if (first + row * 32 + lane < n) y[first + row * 32 + lane] = 2 * tile[lane][row];
}
