// Each block sorts 2 * blockDim.x key-value pairs in dynamic shared memory, descending in odd blocks.
extern "C" __global__ void bitonic_pairs(unsigned* keys, float* values)
{
    extern __shared__ unsigned memory[];
    int count = 2 * blockDim.x, t = threadIdx.x;
    unsigned* key = memory;
    float* value = reinterpret_cast<float*>(memory + count);
    for (int i = t; i < count; i += blockDim.x) {
        key[i] = keys[blockIdx.x * count + i];
        value[i] = values[blockIdx.x * count + i];
    }
    for (int size = 2; size <= count; size <<= 1)
        for (int gap = size >> 1; gap > 0; gap >>= 1) {
            __syncthreads();
            int low = 2 * t - (t & (gap - 1)), high = low + gap;
            bool up = ((low & size) == 0) != (size == count && (blockIdx.x & 1));
            if ((key[low] > key[high]) == up) {
                unsigned k = key[low]; key[low] = key[high]; key[high] = k;
                float v = value[low]; value[low] = value[high]; value[high] = v;
            }
        }
    __syncthreads();
    for (int i = t; i < count; i += blockDim.x) {
        keys[blockIdx.x * count + i] = key[i];
        values[blockIdx.x * count + i] = value[i];
    }
}
