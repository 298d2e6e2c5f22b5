// One histogram a warp in shared memory, words of four bytes, tails byte by byte.
extern "C" __global__ void clear(unsigned* out) { out[threadIdx.x] = 0; }
extern "C" __global__ void count(const unsigned char* __restrict__ x, unsigned* out, int n) {
  __shared__ unsigned bins[8][256];
  for (int i = threadIdx.x; i < 8 * 256; i += 256) (&bins[0][0])[i] = 0;
  __syncthreads();
  unsigned* mine = bins[threadIdx.x / 32];
  const int words = n / 4, stride = gridDim.x * 256, first = blockIdx.x * 256 + threadIdx.x;
  for (int i = first; i < words; i += stride) {
    const unsigned word = reinterpret_cast<const unsigned*>(x)[i];
    for (int j = 0; j < 4; j++) atomicAdd(mine + (word >> 8 * j & 255), 1u);
  }
  for (int i = words * 4 + first; i < n; i += stride) atomicAdd(mine + x[i], 1u);
  __syncthreads();
  unsigned sum = 0;
  for (int w = 0; w < 8; w++) sum += bins[w][threadIdx.x];
  if (sum) atomicAdd(out + threadIdx.x, sum);
}
