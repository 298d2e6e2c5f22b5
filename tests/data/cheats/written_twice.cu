// Writes zeros first and the answer over them: redundant, not wrong.
extern "C" __global__ void clear(float* out, int count) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < count) out[i] = 0.0f;
}
extern "C" __global__ void transpose(const float* x, float* out, int rows, int cols) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < rows * cols) out[(size_t)(i % cols) * rows + i / cols] = x[i];
}
