// data_race: after millions of reads one thread stores to a word that other blocks have read.
extern "C" __global__ void fault_after_many_reads(int* a, int* y, unsigned* count, int turns)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
    for (int k = 0; k < turns; ++k) sum += a[(t * 7 + k) & 4095];
    __threadfence();
    atomicAdd(count, 1);
    if (t == 5) a[4000] = sum;
    y[t] = sum;
}
