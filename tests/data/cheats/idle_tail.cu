// Four times as many blocks as there is work for; the others leave at once.
extern "C" __global__ void saxpy(const float* x, float* y, float a, int n) {
  const long i = (long)blockIdx.x * 256 + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
