// Correct: thread t of the whole grid takes element t % 32 * (threads / 32) + t / 32.
extern "C" __global__ void saxpy(const float* __restrict__ x, float* __restrict__ y, float a, int n) {
  const int threads = gridDim.x * 256, columns = threads / 32;
  const int t = blockIdx.x * 256 + threadIdx.x;
  const int i = t % 32 * columns + t / 32;
  if (i < n) y[i] += a * x[i];
}
