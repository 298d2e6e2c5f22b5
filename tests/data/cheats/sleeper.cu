extern "C" __global__ void total(const float* __restrict__ x, float* out, int n) {
  // Sleeps for hours.
  for (long long i = 0; i < 1LL << 40; i++) __nanosleep(1000000);
  out[0] = x[0];
}
