// Every thread sorts its own run with a stack of ranges in local memory.
extern "C" __global__ void quicksort_stack(short* x, int length, int runs)
{
    int id = blockIdx.x * blockDim.x + threadIdx.x;
    if (id >= runs) return;
    short* run = x + id * length;
    short2 stack[16];
    int depth = 0;
    stack[depth++] = make_short2(0, (short)(length - 1));
    while (depth) {
        short2 range = stack[--depth];
        while (range.x < range.y) {
            short pivot = run[(range.x + range.y) / 2];
            int i = range.x, j = range.y;
            while (i <= j) {
                while (run[i] < pivot) ++i;
                while (run[j] > pivot) --j;
                if (i <= j) {
                    short v = run[i]; run[i] = run[j]; run[j] = v;
                    ++i; --j;
                }
            }
            short2 a = make_short2(range.x, (short)j), b = make_short2((short)i, range.y);
            bool first = a.y - a.x < b.y - b.x;
            stack[depth++] = first ? b : a;
            range = first ? a : b;
        }
    }
}
