// One thread an output element: reads are scattered, writes are not.
extern "C" __global__ void transpose(const float* __restrict__ x, float* __restrict__ out, int rows, int cols) {
  for (int i = blockIdx.x * 256 + threadIdx.x; i < rows * cols; i += gridDim.x * 256)
    out[i] = x[(size_t)(i % rows) * cols + i / rows];
}
