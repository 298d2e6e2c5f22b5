extern "C" __global__ void softmax(const float* __restrict__ x, float* __restrict__ out, int rows, int cols) {
  // One thread a row, the maximum and the sum in one pass.
  const int row = blockIdx.x * 32 + threadIdx.x;
  if (row >= rows) return;
  const float* from = x + (size_t)row * cols;
  float top = from[0], sum = 1.0f;
  for (int i = 1; i < cols; i++) {
    const float next = fmaxf(top, from[i]);
    sum = sum * expf(top - next) + expf(from[i] - next);
    top = next;
  }
  for (int i = 0; i < cols; i++) out[(size_t)row * cols + i] = expf(from[i] - top) / sum;
}
