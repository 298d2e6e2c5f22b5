// Values are appended to one list per parity; lanes that append together take one atomic.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

extern "C" __global__ void aggregated_append(const int* x, int* lists, int* lengths, int n, int capacity)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int value = x[i];
    if (value % 3 == 0) return;
    auto active = cg::coalesced_threads();
    auto peers = cg::labeled_partition(active, value & 1);
    int base = 0;
    if (peers.thread_rank() == 0) base = atomicAdd(&lengths[value & 1], (int)peers.size());
    base = peers.shfl(base, 0);
    lists[(value & 1) * capacity + base + peers.thread_rank()] = value;
}
