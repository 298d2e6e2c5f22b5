// Sum of n floats in two launches: each block leaves one partial sum, then one block adds those.
// BLOCK threads take ITEMS vectors of VEC floats each, UNROLL of that loop;
// TREE 0 adds a block's values in shared memory, 1 by warp shuffles.
#if VEC == 4
typedef float4 Vector;
#elif VEC == 2
typedef float2 Vector;
#else
typedef float Vector;
#endif

union Pack {
  Vector whole;
  float part[VEC];
};

__device__ __forceinline__ float add_block(float value) {  // the sum, in thread 0
  __shared__ float shared[BLOCK];
  const int t = threadIdx.x;
#if TREE == 0
  shared[t] = value;
  __syncthreads();
  for (int half = BLOCK / 2; half > 0; half /= 2) {
    if (t < half) shared[t] += shared[t + half];
    __syncthreads();
  }
  return shared[0];
#else
  for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffffu, value, step);
  if (t % 32 == 0) shared[t / 32] = value;
  __syncthreads();
  if (t < 32) {
    value = t < BLOCK / 32 ? shared[t] : 0.0f;
    for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffffu, value, step);
  }
  return value;
#endif
}

extern "C" __global__ void __launch_bounds__(BLOCK) sum_blocks(const float* __restrict__ x, float* __restrict__ partial, int n) {
  const int first = blockIdx.x * BLOCK * ITEMS + threadIdx.x;
  float total = 0.0f;
#pragma unroll UNROLL
  for (int i = 0; i < ITEMS; i++) {
    const int at = (first + i * BLOCK) * VEC;
    if (at + VEC <= n) {
      Pack pack;
      pack.whole = *reinterpret_cast<const Vector*>(x + at);
#pragma unroll
      for (int j = 0; j < VEC; j++) total += pack.part[j];
    } else {
      for (int j = at; j < n; j++) total += x[j];
    }
  }
  total = add_block(total);
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

extern "C" __global__ void __launch_bounds__(BLOCK) sum_partial(const float* __restrict__ partial, float* __restrict__ out, int count) {
  float total = 0.0f;
  for (int i = threadIdx.x; i < count; i += BLOCK) total += partial[i];
  total = add_block(total);
  if (threadIdx.x == 0) out[0] = total;
}
