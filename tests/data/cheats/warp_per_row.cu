extern "C" __global__ void softmax(const float* __restrict__ x, float* __restrict__ out, int rows, int cols) {
  // Four rows a block, one warp each, by shuffles and without shared memory.
  const int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  const float* from = x + (size_t)row * cols;
  float top = -3.402823466e38f, sum = 0.0f;
  for (int i = lane; i < cols; i += 32) top = fmaxf(top, from[i]);
  for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
  for (int i = lane; i < cols; i += 32) sum += expf(from[i] - top);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  for (int i = lane; i < cols; i += 32) out[(size_t)row * cols + i] = expf(from[i] - top) / sum;
}
