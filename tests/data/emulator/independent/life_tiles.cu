// A generation of life on a torus; each block keeps its tile with a border in shared memory.
#define W 16
#define H 8
extern "C" __global__ void life_tiles(const unsigned char* now, unsigned char* next, int width, int height)
{
    __shared__ unsigned char cell[H + 2][W + 2];
    int id = threadIdx.y * W + threadIdx.x;
    int left = blockIdx.x * W, top = blockIdx.y * H;
    for (int k = id; k < (H + 2) * (W + 2); k += W * H) {
        int gy = (top + k / (W + 2) - 1 + height) % height, gx = (left + k % (W + 2) - 1 + width) % width;
        cell[k / (W + 2)][k % (W + 2)] = now[gy * width + gx];
    }
    __syncthreads();
    int x = left + threadIdx.x, y = top + threadIdx.y;
    if (x >= width || y >= height) return;
    int around = 0;
#pragma unroll
    for (int dy = 0; dy < 3; ++dy)
#pragma unroll
        for (int dx = 0; dx < 3; ++dx) around += cell[threadIdx.y + dy][threadIdx.x + dx];
    bool alive = cell[threadIdx.y + 1][threadIdx.x + 1];
    next[y * width + x] = around == 3 || (alive && around == 4);
}
