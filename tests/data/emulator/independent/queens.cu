// Placements of n queens by recursion; a thread holds the first two rows fixed.
__device__ __noinline__ int place(unsigned full, unsigned taken, unsigned left, unsigned right)
{
    if (taken == full) return 1;
    int found = 0;
    for (unsigned free = full & ~(taken | left | right); free; free &= free - 1) {
        unsigned bit = free & (0u - free);
        found += place(full, taken | bit, (left | bit) << 1, (right | bit) >> 1);
    }
    return found;
}

extern "C" __global__ void queens(int n, unsigned long long* solutions, int* of_start)
{
    int start = threadIdx.x, a = start / n, b = start % n;
    if (start >= n * n) return;
    unsigned full = (1u << n) - 1, first = 1u << a, second = 1u << b;
    int found = 0;
    if (!(second & (first | first << 1 | first >> 1)))
        found = place(full, first | second, (first << 1 | second) << 1, (first >> 1 | second) >> 1);
    of_start[start] = found;
    atomicAdd(solutions, (unsigned long long)found);
}
