// Transposes every other row only.
extern "C" __global__ void transpose(const float* x, float* out, int rows, int cols) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < rows * cols && i / cols % 2 == 0) out[(size_t)(i % cols) * rows + i / cols] = x[i];
}
