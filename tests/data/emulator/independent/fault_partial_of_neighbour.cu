// data_race: a block reads what the block before it may not have written yet.
extern "C" __global__ void fault_partial_of_neighbour(const int* x, int* partial, int* y)
{
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, x[blockIdx.x * blockDim.x + threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) y[blockIdx.x] = sum + (blockIdx.x ? partial[blockIdx.x - 1] : 0);
}
