// Connected components: trees hooked by compare-and-swap, volatile reads, then flattened.
__device__ int root(volatile int* parent, int node)
{
    int up = parent[node];
    while (up != node) {
        node = up;
        up = parent[node];
    }
    return node;
}

extern "C" __global__ void link_edges(int* parent, const int2* edges, int count)
{
    for (int e = blockIdx.x * blockDim.x + threadIdx.x; e < count; e += gridDim.x * blockDim.x) {
        int a = edges[e].x, b = edges[e].y;
        for (;;) {
            a = root(parent, a);
            b = root(parent, b);
            if (a == b) break;
            int low = min(a, b), high = max(a, b);
            if (atomicCAS(&parent[high], high, low) == high) break;
        }
    }
}

extern "C" __global__ void flatten(int* parent, int* label, int nodes)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < nodes) label[i] = root(parent, i);
}
