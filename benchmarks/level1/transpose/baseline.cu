// out = transpose of x, rows x cols floats. Threads TX x TY; each moves ITEMS vectors of VEC floats.
// TILED 0 stores each element straight to its column, 1 goes through a square tile in shared memory
// whose rows carry PAD floats of padding; then TX * VEC == TY * ITEMS.
#if VEC == 4
typedef float4 Vector;
#elif VEC == 2
typedef float2 Vector;
#else
typedef float Vector;
#endif

#define WIDTH (TX * VEC)
#define HEIGHT (TY * ITEMS)

union Pack {
  Vector whole;
  float part[VEC];
};

// Rows of a matrix whose width is no multiple of VEC are not aligned for vectors.
__device__ __forceinline__ Pack load(const float* x, int row, int col, int cols) {
  Pack pack;
  const float* from = x + (size_t)row * cols + col;
  if (cols % VEC == 0) {
    pack.whole = *reinterpret_cast<const Vector*>(from);
  } else {
#pragma unroll
    for (int j = 0; j < VEC; j++) pack.part[j] = col + j < cols ? from[j] : 0.0f;
  }
  return pack;
}

extern "C" __global__ void __launch_bounds__(TX * TY) transpose(const float* __restrict__ x, float* __restrict__ out, int rows, int cols) {
  const int row0 = blockIdx.y * HEIGHT + threadIdx.y, col0 = blockIdx.x * WIDTH;
  const int col = col0 + threadIdx.x * VEC;
#if TILED == 0
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const int row = row0 + i * TY;
    if (row < rows && col < cols) {
      const Pack pack = load(x, row, col, cols);
#pragma unroll
      for (int j = 0; j < VEC; j++)
        if (col + j < cols) out[(size_t)(col + j) * rows + row] = pack.part[j];
    }
  }
#else
  __shared__ float tile[HEIGHT][WIDTH + PAD];
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const int row = row0 + i * TY;
    if (row < rows && col < cols) {
      const Pack pack = load(x, row, col, cols);
#pragma unroll
      for (int j = 0; j < VEC; j++) tile[threadIdx.y + i * TY][threadIdx.x * VEC + j] = pack.part[j];
    }
  }
  __syncthreads();
  const int to = blockIdx.y * HEIGHT + threadIdx.x * VEC;
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const int c = threadIdx.y + i * TY;
    float* into = out + (size_t)(col0 + c) * rows + to;
    if (col0 + c >= cols || to >= rows) continue;
    if (rows % VEC == 0) {
      Pack pack;
#pragma unroll
      for (int j = 0; j < VEC; j++) pack.part[j] = tile[threadIdx.x * VEC + j][c];
      *reinterpret_cast<Vector*>(into) = pack.whole;
    } else {
#pragma unroll
      for (int j = 0; j < VEC; j++)
        if (to + j < rows) into[j] = tile[threadIdx.x * VEC + j][c];
    }
  }
#endif
}
