extern "C" __global__ void k(const float* x, float* y, int n) {
  while (*(volatile const float*)x != 12345.0f) { }
  y[0] = n;
}
