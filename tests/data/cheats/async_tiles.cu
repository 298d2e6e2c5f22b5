// Tiles are copied asynchronously, the next while this one is used.
__device__ void copy(float* to, const float* from, bool inside) {
  const unsigned at = (unsigned)__cvta_generic_to_shared(to);
  const int bytes = inside ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
}
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float ta[2][16][17], tb[2][16][17];
  const int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
  const auto fetch = [&](int p, int s0) {
    const bool in_a = row < m && s0 + tx < k, in_b = s0 + ty < k && col < n;
    copy(&ta[p][ty][tx], in_a ? a + row * k + s0 + tx : a, in_a);
    copy(&tb[p][ty][tx], in_b ? b + (s0 + ty) * n + col : b, in_b);
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  float sum = 0.0f;
  int p = 0;
  fetch(0, 0);
  for (int s0 = 0; s0 < k; s0 += 16, p ^= 1) {
    fetch(p ^ 1, s0 + 16);
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    for (int s = 0; s < 16; s++) sum += ta[p][ty][s] * tb[p][s][tx];
    __syncthreads();
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  if (row < m && col < n) c[row * n + col] = sum;
}
