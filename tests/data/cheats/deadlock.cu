extern "C" __global__ void total(const float* __restrict__ x, float* out, int n) {
  // Half of the threads wait at a barrier that the others never reach: they spin for them.
  __shared__ volatile int ready;
  if (threadIdx.x == 0) ready = 0;
  __syncthreads();
  if (threadIdx.x < 128) {
    __syncthreads();
    ready = 1;
  } else {
    while (ready == 0) {
    }
  }
  if (threadIdx.x == 0) out[0] = 0.0f;
}
