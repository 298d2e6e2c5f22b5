// Softmax of each row of x, rows x cols floats: one block of BLOCK threads a row, VEC floats a load.
// ONLINE 0 reads the row for the maximum, then for the sum; 1 finds both in one pass.
// HELD values a thread are kept in registers where the row fits, so that it is read once; 0: never.
// FAST 0 calls expf, 1 uses the special function unit. UNROLL of the loops over a row.
// TREE 0 joins a block's states in shared memory, 1 by warp shuffles.
#if VEC == 4
typedef float4 Vector;
#elif VEC == 2
typedef float2 Vector;
#else
typedef float Vector;
#endif

#define LOWEST (-3.402823466e38f)

union Pack {
  Vector whole;
  float part[VEC];
};

__device__ __forceinline__ float power(float value) {
#if FAST
  return __expf(value);
#else
  return expf(value);
#endif
}

// Vectors need rows whose length is a multiple of VEC; others are read float by float.
template <class Use>
__device__ __forceinline__ void each(const float* row, int cols, Use use) {
  if (cols % VEC == 0) {
#pragma unroll UNROLL
    for (int i = threadIdx.x * VEC; i < cols; i += BLOCK * VEC) {
      Pack pack;
      pack.whole = *reinterpret_cast<const Vector*>(row + i);
#pragma unroll
      for (int j = 0; j < VEC; j++) use(i + j, pack.part[j]);
    }
  } else {
#pragma unroll 1
    for (int i = threadIdx.x; i < cols; i += BLOCK) use(i, row[i]);
  }
}

struct State {
  float top, sum;  // the maximum, and the sum of exp(value - top)
};

__device__ __forceinline__ State joined(State a, State b) {
  const float top = fmaxf(a.top, b.top);
  return {top, a.sum * power(a.top - top) + b.sum * power(b.top - top)};
}

__device__ __forceinline__ State over_warp(State state) {
  float top = state.top;
  for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
  float sum = state.sum * power(state.top - top);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  return {top, sum};
}

__device__ __forceinline__ State over_block(State state) {
  __shared__ float tops[BLOCK], sums[BLOCK];
  const int t = threadIdx.x;
#if TREE
  state = over_warp(state);
  if (BLOCK == 32) return state;
  if (t % 32 == 0) {
    tops[t / 32] = state.top;
    sums[t / 32] = state.sum;
  }
  __syncthreads();
  const bool one = t % 32 < BLOCK / 32;
  return over_warp({one ? tops[t % 32] : LOWEST, one ? sums[t % 32] : 0.0f});
#else
  tops[t] = state.top;
  sums[t] = state.sum;
  __syncthreads();
  for (int half = BLOCK / 2; half > 0; half /= 2) {
    if (t < half) {
      const State both = joined({tops[t], sums[t]}, {tops[t + half], sums[t + half]});
      tops[t] = both.top;
      sums[t] = both.sum;
    }
    __syncthreads();
  }
  return {tops[0], sums[0]};
#endif
}

#if HELD
// The same for a row of at most BLOCK * HELD values, in vectors: every value is loaded once.
__device__ __forceinline__ void held(const float* row, float* to, int cols) {
  Pack packs[HELD / VEC];
  const int first = threadIdx.x * VEC, stride = BLOCK * VEC;
  State mine = {LOWEST, 0.0f};
#pragma unroll
  for (int k = 0; k < HELD / VEC; k++) {
    if (first + k * stride < cols) {
      packs[k].whole = *reinterpret_cast<const Vector*>(row + first + k * stride);
    }
  }
#pragma unroll
  for (int k = 0; k < HELD / VEC; k++) {
    if (first + k * stride < cols) {
#pragma unroll
      for (int j = 0; j < VEC; j++) mine.top = fmaxf(mine.top, packs[k].part[j]);
    }
  }
#pragma unroll
  for (int k = 0; k < HELD / VEC; k++) {
    if (first + k * stride < cols) {
#pragma unroll
      for (int j = 0; j < VEC; j++) {
        packs[k].part[j] = power(packs[k].part[j] - mine.top);
        mine.sum += packs[k].part[j];
      }
    }
  }
  const State whole = over_block(mine);
  const float scale = power(mine.top - whole.top) / whole.sum;
#pragma unroll
  for (int k = 0; k < HELD / VEC; k++) {
    if (first + k * stride < cols) {
#pragma unroll
      for (int j = 0; j < VEC; j++) packs[k].part[j] *= scale;
      *reinterpret_cast<Vector*>(to + first + k * stride) = packs[k].whole;
    }
  }
}
#endif

extern "C" __global__ void __launch_bounds__(BLOCK) softmax(const float* __restrict__ x, float* __restrict__ out, int rows, int cols) {
  const float* row = x + (size_t)blockIdx.x * cols;
  float* to = out + (size_t)blockIdx.x * cols;
#if HELD
  if (cols <= BLOCK * HELD && cols % VEC == 0) return held(row, to, cols);
#endif
  State mine = {LOWEST, 0.0f};
#if ONLINE
  each(row, cols, [&](int, float value) {
    const float top = fmaxf(mine.top, value);
    mine.sum = mine.sum * power(mine.top - top) + power(value - top);
    mine.top = top;
  });
#else
  each(row, cols, [&](int, float value) { mine.top = fmaxf(mine.top, value); });
  each(row, cols, [&](int, float value) { mine.sum += power(value - mine.top); });
#endif
  const State whole = over_block(mine);
  each(row, cols, [&](int i, float value) { to[i] = power(value - whole.top) / whole.sum; });
}
