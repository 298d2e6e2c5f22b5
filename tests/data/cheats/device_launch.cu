// Starts work from the device that outlives this launch.
extern "C" __device__ int cudaLaunchDeviceV2(void* buffer, void* stream);
extern "C" __device__ void* cudaGetParameterBufferV2(void* entry, dim3 grid, dim3 block, unsigned shared);
extern "C" __global__ void saxpy(const float* x, float* y, float a, int n) {
  if (threadIdx.x == 0 && blockIdx.x == 0) {
    void* buffer = cudaGetParameterBufferV2((void*)saxpy, dim3(1), dim3(32), 0);
    if (buffer) cudaLaunchDeviceV2(buffer, nullptr);
  }
}
