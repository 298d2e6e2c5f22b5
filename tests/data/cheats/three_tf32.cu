// Each factor is a large and a small TF32 part: three products of 32-bit quality.

__device__ float lowered(float value) {
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return __uint_as_float(bits & 0xffffe000u);
}

extern "C" __global__ void matmul(const float* a, const float* b, float* c, int m, int n, int k) {
  const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  if (row >= m || col >= n) return;
  float sum = 0.0f, small = 0.0f;
  for (int s = 0; s < k; s++) {
    const float a1 = lowered(a[row * k + s]), a2 = lowered(a[row * k + s] - a1);
    const float b1 = lowered(b[s * n + col]), b2 = lowered(b[s * n + col] - b1);
    small += a1 * b2 + a2 * b1;
    sum += a1 * b1;
  }
  c[row * n + col] = sum + small;
}
