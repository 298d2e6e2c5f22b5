// y = 2 x by way of scratch, and a ticket that must start at zero.
extern "C" __global__ void first(const float* __restrict__ x, float* __restrict__ held, unsigned* ticket, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) held[i] = x[i];
  if (threadIdx.x == 0) atomicAdd(ticket, 1u);
}
extern "C" __global__ void second(const float* __restrict__ held, const unsigned* ticket, float* __restrict__ y, int n, unsigned blocks) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = *ticket == blocks ? 2 * held[i] : -1.0f;
}
