// c = a b in 32-bit floats, a is m x k, b is k x n, row-major. BX x BY threads; each computes TM x TN
// elements, BY and BX apart. TILED 0 reads both matrices from global memory in every step of k;
// 1 stages BK steps of both in shared memory, rows of a's tile padded by PAD. UNROLL of the k loop.
#define BM (BY * TM)
#define BN (BX * TN)
#define THREADS (BX * BY)

extern "C" __global__ void __launch_bounds__(THREADS) matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
  const int tx = threadIdx.x, ty = threadIdx.y;
  const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
  float sum[TM][TN];
#pragma unroll
  for (int i = 0; i < TM; i++)
#pragma unroll
    for (int j = 0; j < TN; j++) sum[i][j] = 0.0f;
#if TILED == 0
  // A row or column outside the matrix reads the last one; its result is not stored.
  const float* from_a[TM];
  const float* from_b[TN];
#pragma unroll
  for (int i = 0; i < TM; i++) from_a[i] = a + (size_t)min(row0 + ty + i * BY, m - 1) * k;
#pragma unroll
  for (int j = 0; j < TN; j++) from_b[j] = b + min(col0 + tx + j * BX, n - 1);
#pragma unroll UNROLL
  for (int s = 0; s < k; s++) {
    float right[TN];
#pragma unroll
    for (int j = 0; j < TN; j++) right[j] = from_b[j][(size_t)s * n];
#pragma unroll
    for (int i = 0; i < TM; i++) {
      const float left = from_a[i][s];
#pragma unroll
      for (int j = 0; j < TN; j++) sum[i][j] += left * right[j];
    }
  }
#else
  __shared__ float tile_a[BM][BK + PAD];
  __shared__ float tile_b[BK][BN];
  const int t = ty * BX + tx;
  for (int s0 = 0; s0 < k; s0 += BK) {
#pragma unroll
    for (int q = t; q < BM * BK; q += THREADS) {
      const int row = row0 + q / BK, s = s0 + q % BK;
      tile_a[q / BK][q % BK] = row < m && s < k ? a[(size_t)row * k + s] : 0.0f;
    }
#pragma unroll
    for (int q = t; q < BK * BN; q += THREADS) {
      const int s = s0 + q / BN, col = col0 + q % BN;
      tile_b[q / BN][q % BN] = s < k && col < n ? b[(size_t)s * n + col] : 0.0f;
    }
    __syncthreads();
#pragma unroll UNROLL
    for (int s = 0; s < BK; s++) {
      float right[TN];
#pragma unroll
      for (int j = 0; j < TN; j++) right[j] = tile_b[s][tx + j * BX];
#pragma unroll
      for (int i = 0; i < TM; i++) {
        const float left = tile_a[ty + i * BY][s];
#pragma unroll
        for (int j = 0; j < TN; j++) sum[i][j] += left * right[j];
      }
    }
    __syncthreads();
  }
#endif
#pragma unroll
  for (int i = 0; i < TM; i++)
#pragma unroll
    for (int j = 0; j < TN; j++) {
      const int row = row0 + ty + i * BY, col = col0 + tx + j * BX;
      if (row < m && col < n) c[(size_t)row * n + col] = sum[i][j];
    }
}
