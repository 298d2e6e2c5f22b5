// Correct: but only thread 0 works.
extern "C" __global__ void softmax(const float* __restrict__ x, float* __restrict__ out, int rows, int cols) {
  if (threadIdx.x != 0) return;
  const float* row = x + (size_t)blockIdx.x * cols;
  float top = -3.402823466e38f, sum = 0.0f;
#pragma unroll 1
  for (int i = 0; i < cols; i++) top = fmaxf(top, row[i]);
#pragma unroll 1
  for (int i = 0; i < cols; i++) sum += expf(row[i] - top);
#pragma unroll 1
  for (int i = 0; i < cols; i++) out[(size_t)blockIdx.x * cols + i] = expf(row[i] - top) / sum;
}
