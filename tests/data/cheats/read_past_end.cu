// Loads whole vectors past the end of the arrays, and stores only what is inside.
extern "C" __global__ void saxpy(const float* x, float* y, float a, int n) {
  const int at = (blockIdx.x * 256 + threadIdx.x) * 4;
  float u[4], v[4];
  for (int j = 0; j < 4; j++) {
    u[j] = x[at + j];
    v[j] = y[at + j];
  }
  for (int j = 0; j < 4; j++)
    if (at + j < n) y[at + j] = v[j] + a * u[j];
}
