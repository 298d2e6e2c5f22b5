// misaligned_access: rows of 4k + 2 floats read as float4; even rows are aligned.
extern "C" __global__ void fault_odd_row(const float* x, float* y, int cols)
{
    const float4* row = reinterpret_cast<const float4*>(x + blockIdx.x * cols);
    float4 v = row[threadIdx.x];
    y[blockIdx.x * blockDim.x + threadIdx.x] = v.x + v.y + v.z + v.w;
}
