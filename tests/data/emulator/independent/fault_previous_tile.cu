// data_race: two buffers and one barrier a turn, but a turn also reads the tile before.
extern "C" __global__ void fault_previous_tile(const float* x, float* y, int tiles)
{
    __shared__ float tile[2][64];
    int t = threadIdx.x;
    float sum = 0.0f;
    tile[1][t] = 0.0f;
    for (int k = 0; k < tiles; ++k) {
        tile[k & 1][t] = x[k * 64 + t];
        __syncthreads();
        sum += tile[k & 1][63 - t] - tile[(k & 1) ^ 1][63 - t];
    }
    y[t] = sum;
}
