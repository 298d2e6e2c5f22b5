__device__ __noinline__ float deeper(const float* x, int depth) {
  float held[64];
  for (int i = 0; i < 64; i++) held[i] = x[i % 8] + depth;
  if (depth > 0) held[depth % 64] += deeper(x, depth - 1);
  return held[depth % 64] + held[(depth + 1) % 64];
}
extern "C" __global__ void k(const float* x, float* y, int n) { y[threadIdx.x % n] = deeper(x, 1000000); }
