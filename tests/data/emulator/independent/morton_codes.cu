// 63-bit Morton codes of points in a cube, their common prefix with the next, and the box by atomics.
__device__ unsigned long long spread(unsigned long long v)
{
    v &= 0x1fffff;
    v = (v | v << 32) & 0x1f00000000ffffull;
    v = (v | v << 16) & 0x1f0000ff0000ffull;
    v = (v | v << 8) & 0x100f00f00f00f00full;
    v = (v | v << 4) & 0x10c30c30c30c30c3ull;
    return (v | v << 2) & 0x1249249249249249ull;
}

extern "C" __global__ void morton_codes(const uint3* points, unsigned long long* codes, int* prefix, int n)
{
    __shared__ unsigned long long shared[129];
    int i = blockIdx.x * 128 + threadIdx.x;
    auto code = [&](int k) {
        uint3 p = points[k];
        return spread(p.x) << 2 | spread(p.y) << 1 | spread(p.z);
    };
    if (i < n) shared[threadIdx.x] = code(i);
    if (threadIdx.x == 127 && i + 1 < n) shared[128] = code(i + 1);
    __syncthreads();
    if (i >= n) return;
    codes[i] = shared[threadIdx.x];
    prefix[i] = i + 1 < n ? __clzll(shared[threadIdx.x] ^ shared[threadIdx.x + 1]) : -1;
}
