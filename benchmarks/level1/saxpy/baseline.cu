// y = a x + y over n floats, in place. BLOCK threads take ITEMS vectors of VEC floats each, BLOCK
// vectors apart; UNROLL of that loop.
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

extern "C" __global__ void __launch_bounds__(BLOCK) saxpy(const float* __restrict__ x, float* __restrict__ y, float a, int n) {
#pragma unroll UNROLL
  for (int i = 0; i < ITEMS; i++) {
    const int at = ((blockIdx.x * ITEMS + i) * BLOCK + threadIdx.x) * VEC;
    if (at + VEC <= n) {
      Pack px, py;
      px.whole = *reinterpret_cast<const Vector*>(x + at);
      py.whole = *reinterpret_cast<const Vector*>(y + at);
#pragma unroll
      for (int j = 0; j < VEC; j++) py.part[j] += a * px.part[j];
      *reinterpret_cast<Vector*>(y + at) = py.whole;
    } else {
      for (int j = at; j < n; j++) y[j] += a * x[j];
    }
  }
}
